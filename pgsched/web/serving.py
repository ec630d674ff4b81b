"""The HTTP server of the console: its socket, its limits on connections, and its end.

Invariants:

- The console announces its address only once it listens.
- The address of a client is never taken from a header.
- A connection that sends no whole head of a request is closed after HEAD_S seconds, or earlier if others need its
  place.
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
from pgsched.web.app import make_console
from pgsched.web.security.guesses import address_of
from pgsched.web.settings import Settings

HEAD_S = 10.0
MAX_CONNECTIONS = 500
MAX_WITHOUT_HEAD = 200  # connections that have not sent a whole head
MAX_PER_PEER = 250  # connections of one address


class ConnectionLimits:
    """The open connections, and their limits.

    `is_shared`: checks whether many people share an address; a shared address has no limit of its own.
    """

    def __init__(self, is_shared: Callable[[str], bool]) -> None:
        self._is_shared = is_shared
        self._waiting: dict[ConsoleConnection, None] = {}  # connections without a whole head, oldest first
        self._count_by_peer: Counter[str] = Counter()

    def come(self, door: ConsoleConnection) -> None:
        """Count a new connection.

        If its address has too many, the oldest of them without a whole head is closed, else the new one.
        """
        self._count_by_peer[door.peer] += 1
        if self._count_by_peer[door.peer] > MAX_PER_PEER and not self._is_shared(door.peer):
            self._close(next((one for one in self._waiting if one.peer == door.peer), door))

    def wait(self, door: ConsoleConnection) -> None:
        """Add a connection without a whole head; if there are too many, close the oldest of them."""
        self._waiting[door] = None
        if len(self._waiting) > MAX_WITHOUT_HEAD:
            self._close(next(iter(self._waiting)))

    def _close(self, door: ConsoleConnection) -> None:
        self.enter(door)
        door.transport.abort()

    def enter(self, door: ConsoleConnection) -> None:
        """Note that a connection has sent a whole head, or is gone."""
        self._waiting.pop(door, None)

    def go(self, door: ConsoleConnection) -> None:
        """Forget a connection that is closed."""
        self.enter(door)
        self._count_by_peer[door.peer] -= 1
        if not self._count_by_peer[door.peer]:
            del self._count_by_peer[door.peer]


class ConsoleConnection(H11Protocol):
    """An HTTP connection with a time limit for each head of a request."""

    doors: ConnectionLimits
    peer = ""
    head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and start the time limit of its first head."""
        super().connection_made(transport)
        self.peer = address_of(self.client)
        self.doors.come(self)
        self.begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit, and forget the connection."""
        self.end_head()
        self.doors.go(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop the time limit once a whole head was received; start it if more is missing."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            self.end_head()
        else:
            self.begin_head()

    def begin_head(self) -> None:
        """Start the time limit of a head, unless it is running."""
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_S, self.transport.close)
            self.doors.wait(self)

    def end_head(self) -> None:
        """Stop the time limit of a head."""
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None
            self.doors.enter(self)


class EndingServer(uvicorn.Server):
    """A uvicorn server that ends the event streams when it is asked to stop.

    uvicorn ends its application only after the last connection: by then it has cut the streams off.
    """

    def __init__(self, config: uvicorn.Config, ending: asyncio.Event) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the event streams, then shut down as uvicorn does."""
        self._ending.set()
        await super().shutdown(sockets)


def serve_console(settings: Settings, dsn: str, on_listening: Callable[[str], object]) -> None:
    """Serve the console until SIGINT or SIGTERM.

    `on_listening`: called with the address of the console once it listens.
    Raises InputError where the console cannot listen.
    """
    listening = open_socket(settings.host, settings.port)
    name, port = listening.getsockname()[:2]
    url_host = f"[{name}]" if ":" in name else name
    ending = asyncio.Event()
    config = uvicorn.Config(
        make_console(replace(settings, dsn=dsn), ending),
        http=type("ConsoleDoor", (ConsoleConnection,), {"doors": ConnectionLimits(settings.is_shared)}),
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=MAX_CONNECTIONS,
        ws="none",
    )
    gc_tuning.tune_for_long_run()
    server = EndingServer(config, ending)
    with listening, stopped_by_sigterm(server):
        on_listening(f"http://{url_host}:{port}{settings.root_path}/")
        server.run(sockets=[listening])


@contextmanager
def stopped_by_sigterm(server: uvicorn.Server) -> Iterator[None]:
    """Let SIGTERM stop the server also before and after uvicorn handles it, with exit code 0.

    uvicorn handles the signal only while it serves. When it has ended, it sends the same signal to its own process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        server.should_exit = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def open_socket(host: str, port: int) -> socket.socket:
    """Open the socket to listen on.

    Raises InputError where the address cannot be used.
    """
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
