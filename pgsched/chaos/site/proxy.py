"""A TCP proxy in front of a PostgreSQL server, which does what networks do: cuts, refuses, delays, keeps one direction
or both to itself, and loses the answer to one chosen statement.

The rule: what a healed network would deliver late is delivered late, in order; a cut is seen by both sides. It runs on
an event loop in a thread of its own, and every method may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.chaos.site.proxied_connection import Link

T = TypeVar("T")
Which = Callable[[Link], bool]
ANSWER_S = 20.0


def everyone(link: Link) -> bool:
    """Every connection."""
    return True


def of(purpose: str) -> Which:
    """Connections whose application_name contains this: `claim`, `settle`, `leader`, `listen`, `heartbeat`…"""
    return lambda link: purpose in link.frontend.application


@dataclass
class Loss:
    """The answer to a statement is lost `times` times. `at`: before the server hears of it, or after it has done it.

    `statement`: a pattern that its text contains. `commit`: it is the COMMIT of the transaction in which the statement
    was that counts.
    """

    statement: str
    at: Literal["before", "after"]
    commit: bool = False
    times: int = 1
    which: Which = everyone
    done: int = 0
    changed: threading.Event = field(default_factory=threading.Event)

    def takes(self, link: Link, statements: tuple[str, ...]) -> bool:
        """Is it this request? Counts it, if so."""
        if self.done >= self.times or not self.which(link):
            return False
        if self.commit:
            found = "COMMIT" in statements and any(re.search(self.statement, text) for text in link.transaction)
        else:
            found = any(re.search(self.statement, text) for text in statements)
        self.done += found
        if self.done >= self.times:
            self.changed.set()
        return found

    def wait(self, seconds: float) -> bool:
        """Wait until all have happened; False if they have not within so many seconds."""
        return self.changed.wait(seconds)


class Proxy:
    """`with Proxy(dsn) as proxy:` clients use `proxy.dsn`."""

    def __init__(self, dsn: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = conninfo_to_dict(dsn)
        self.host, self.port = host, port
        self.links: set[Link] = set()
        self.losses: list[Loss] = []
        self.delay_s = 0.0  # each way
        self.silent: set[Literal["up", "down"]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._listener: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def dsn(self) -> str:
        """The server's DSN, by way of this proxy."""
        mine = {"host": self.host, "port": str(self.port), "sslmode": "disable", "gssencmode": "disable"}
        given = {name: str(value) for name, value in self._server.items() if name != "hostaddr" and value is not None}
        return make_conninfo("", **given | mine)

    def start(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def stop(self) -> None:
        """Close everything and end the thread."""
        if not self._thread.is_alive():
            return
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- faults

    def cut(self, which: Which = everyone) -> int:
        """Close these connections on both sides at once; how many there were."""
        return self._do(self._cut(which))

    def refuse(self) -> None:
        """Nobody listens any more: new connections are refused. Those that there are go on."""
        self._do(self._deaf())

    def black_hole(self) -> None:
        """New connections and old ones: taken, and nothing of them goes anywhere."""
        self.silence("up", "down")

    def silence(self, *directions: Literal["up", "down"], which: Which = everyone) -> None:
        """Nothing goes `up` (to the server), or `down`, for these connections and, for `everyone`, all new ones."""
        self._do(self._hold(set(directions), which))

    def delay(self, seconds: float) -> None:
        """Everything takes so much longer there and so much back."""
        self.delay_s = seconds

    def heal(self) -> None:
        """Listen, deliver what was held, delay nothing, lose nothing more."""
        self.delay(0.0)
        self.losses.clear()
        self._do(self._healed())

    def lose_answer(
        self,
        statement: str,
        at: Literal["before", "after"] = "after",
        *,
        commit: bool = False,
        times: int = 1,
        which: Which = everyone,
    ) -> Loss:
        """Lose the answer to the next such statement (see `Loss`), and with it the connection."""
        loss = Loss(statement, at, commit, times, which)
        self.losses.append(loss)
        return loss

    # ---- on the loop's thread

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, self.host, self.port, reuse_address=True)
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _deaf(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._pass_on(reader, writer)
        except asyncio.CancelledError:
            pass  # by _end; the stream's own callback would report it
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            there = await self._reach()
        except OSError:
            return
        link = Link((reader, writer), there, self)
        for direction in self.silent:
            link.hold(direction)
        self.links.add(link)
        try:
            await link.run()
        finally:
            self.links.discard(link)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._server.get("host") or "127.0.0.1"), int(self._server.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _cut(self, which: Which) -> int:
        chosen = [link for link in self.links if which(link)]
        for link in chosen:
            link.cut()
        return len(chosen)

    async def _hold(self, directions: set[Literal["up", "down"]], which: Which) -> None:
        if which is everyone:
            self.silent |= directions
        for link in self.links:
            if which(link):
                for direction in directions:
                    link.hold(direction)

    async def _healed(self) -> None:
        self.silent.clear()
        for link in list(self.links):
            link.release()
        await self._listen()

    async def _end(self) -> None:
        await self._deaf()
        await self._cut(everyone)
        for task in list(self._serving):
            task.cancel()
        deadline = time.monotonic() + 5
        while self._serving and time.monotonic() < deadline:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)
