"""Listening.

Invariants: it says where it listens only once it does, and who connects is never taken from a header. A connection that
sends no whole head is closed after HEAD_S, and before that if others need its place.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pgsched import gc_tuning
from pgsched.errors import InputError
from pgsched.web.app import make
from pgsched.web.security.guesses import address_of
from pgsched.web.settings import Settings

HEAD_S = 10.0
MOST, MOST_WAITING, MOST_OF_A_PEER = 500, 200, 250  # connections, those of them without a head, those of one address


class Doors:
    """The open connections. `proxies`: addresses that many people share."""

    def __init__(self, is_shared: Callable[[str], bool]) -> None:
        self._is_shared = is_shared
        self._waiting: dict[Door, None] = {}  # those without a whole head, the oldest first
        self._of: Counter[str] = Counter()

    def come(self, door: Door) -> None:
        """A connection was made; where its address has too many, the oldest of these without a head is closed, else
        this one."""
        self._of[door.peer] += 1
        if self._of[door.peer] > MOST_OF_A_PEER and not self._is_shared(door.peer):
            self._close(next((one for one in self._waiting if one.peer == door.peer), door))

    def wait(self, door: Door) -> None:
        """It has sent no whole head; the oldest such one makes room."""
        self._waiting[door] = None
        if len(self._waiting) > MOST_WAITING:
            self._close(next(iter(self._waiting)))

    def _close(self, door: Door) -> None:
        self.enter(door)
        door.transport.abort()

    def enter(self, door: Door) -> None:
        """It has sent a head, or is gone."""
        self._waiting.pop(door, None)

    def go(self, door: Door) -> None:
        self.enter(door)
        self._of[door.peer] -= 1
        if not self._of[door.peer]:
            del self._of[door.peer]


class Door(H11Protocol):
    """A connection with a time limit for heads, the first and every later one."""

    doors: Doors
    peer = ""
    head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer = address_of(self.client)
        self.doors.come(self)
        self.begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end_head()
        self.doors.go(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            self.end_head()
        else:
            self.begin_head()

    def begin_head(self) -> None:
        """From now on it has HEAD_S to say what it wants."""
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_S, self.transport.close)
            self.doors.wait(self)

    def end_head(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None
            self.doors.enter(self)


class EndingServer(uvicorn.Server):
    """A server whose event streams end when it is told to stop. uvicorn ends its application only after the last
    connection, and would cut the streams off by then."""

    def __init__(self, config: uvicorn.Config, ending: asyncio.Event) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all that is open."""
        self._ending.set()
        await super().shutdown(sockets)


def serve(settings: Settings, dsn: str, told: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM."""
    listening = listen(settings.host, settings.port)
    name, port = listening.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    ending = asyncio.Event()
    config = uvicorn.Config(
        make(replace(settings, dsn=dsn), ending),
        http=type("ConsoleDoor", (Door,), {"doors": Doors(settings.is_shared)}),
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=MOST,
        ws="none",
    )
    gc_tuning.last()
    with listening, outliving_sigterm():
        told(f"http://{shown}:{port}/")
        EndingServer(config, ending).run(sockets=[listening])


@contextmanager
def outliving_sigterm() -> Iterator[None]:
    """uvicorn sends itself again the signal that ended it: nobody dies of a SIGTERM here, and the exit code is 0."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def listen(host: str, port: int) -> socket.socket:
    """The socket. Raises InputError where there can be none."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        raise InputError(f"host: cannot listen on {host}:{port}: {error.strerror or error}", "host") from None
    return listening
