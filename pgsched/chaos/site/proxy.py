"""A TCP proxy in front of a PostgreSQL server that imitates network faults.

It cuts, refuses, delays and holds connections, and loses the answer to a chosen statement.

Invariant: data that a healed network would deliver late is delivered late and in order; both sides see a cut. The proxy
runs on an event loop in a thread of its own. Every method may be called from any thread.
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


def all_links(link: Link) -> bool:
    """Match every connection."""
    return True


def with_application_name(purpose: str) -> Which:
    """Match connections whose application_name contains `purpose`, such as `claim`, `settle`, `leader` or `listen`."""
    return lambda link: purpose in link.frontend.application


@dataclass
class Loss:
    """A fault that loses the answer to a statement, `times` times.

    `statement`: a regular expression for the statement's text.
    `at`: "before" the server gets the statement, or "after" the server has done it.
    `commit`: lose the answer to the COMMIT of the transaction that contained the statement.
    `taken`: how many requests were chosen; `done`: how many of their answers have been lost.
    """

    statement: str
    at: Literal["before", "after"]
    commit: bool = False
    times: int = 1
    which: Which = all_links
    taken: int = 0
    done: int = 0
    finished: threading.Event = field(default_factory=threading.Event)

    def takes(self, link: Link, statements: tuple[str, ...]) -> bool:
        """Check whether this request's answer is to be lost; if so, count the request."""
        if self.taken >= self.times or not self.which(link):
            return False
        if self.commit:
            found = "COMMIT" in statements and any(re.search(self.statement, text) for text in link.transaction)
        else:
            found = any(re.search(self.statement, text) for text in statements)
        self.taken += found
        return found

    def note_lost(self) -> None:
        """Count an answer that is lost now: with "after", the server has done the statement."""
        self.done += 1
        if self.done >= self.times:
            self.finished.set()

    def wait(self, seconds: float) -> bool:
        """Wait until all losses have happened; return False after this many seconds."""
        return self.finished.wait(seconds)


class Proxy:
    """A running proxy: `with Proxy(dsn) as proxy:`, and clients connect to `proxy.dsn`."""

    def __init__(self, dsn: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = conninfo_to_dict(dsn)
        self.host, self.port = host, port
        self.links: set[Link] = set()
        self.losses: list[Loss] = []
        self.delay_s = 0.0  # in each direction
        self.silent: set[Literal["up", "down"]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._listener: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def dsn(self) -> str:
        """Return the server's DSN with the proxy's address."""
        mine = {"host": self.host, "port": str(self.port), "sslmode": "disable", "gssencmode": "disable"}
        given = {name: str(value) for name, value in self._server.items() if name != "hostaddr" and value is not None}
        return make_conninfo("", **given | mine)

    def start(self) -> Self:
        """Start the thread, and listen; return the proxy."""
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

    # ---- faults that a test can switch on

    def cut(self, which: Which = all_links) -> int:
        """Close the matching connections on both sides at once; return how many were closed."""
        return self._do(self._cut(which))

    def refuse(self) -> None:
        """Stop listening: new connections are refused, and existing ones go on."""
        self._do(self._deaf())

    def black_hole(self) -> None:
        """Accept new connections, and pass no data of any connection."""
        self.silence("up", "down")

    def silence(self, *directions: Literal["up", "down"], which: Which = all_links) -> None:
        """Pass no data in these directions: "up" to the server, "down" to the client.

        Without `which`, this applies to all connections, new ones included.
        """
        self._do(self._hold(set(directions), which))

    def delay(self, seconds: float) -> None:
        """Delay all data by this many seconds in each direction."""
        self.delay_s = seconds

    def heal(self) -> None:
        """Listen again, deliver the data that was held, and stop all delays and losses."""
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
        which: Which = all_links,
    ) -> Loss:
        """Lose the answer to the next matching statement (see `Loss`), and cut its connection."""
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
            pass  # cancelled by _end; the stream's own callback would log it
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
        if which is all_links:
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
        await self._cut(all_links)
        for task in list(self._serving):
            task.cancel()
        deadline = time.monotonic() + 5
        while self._serving and time.monotonic() < deadline:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)
