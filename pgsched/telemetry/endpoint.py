"""A tiny HTTP server for probes and scrapes, in a thread and on an event loop of its own.

Invariant: no client can use up its memory or its connections, or keep a probe from being answered.

- The head of a request has at most HEAD_BYTES bytes, and HEAD_S seconds to arrive.
- At most MOST_CONNECTIONS connections are open at a time, and each serves one request.
- GET and HEAD of known paths are answered; other requests get an error.
- One connection too many closes another: of the peer with most unfinished request heads, the oldest one.

The server answers also while the worker's own event loop is blocked; the health answer then reports that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pgsched import log
from pgsched.errors import InputError

logger = log.get("endpoint")
HEAD_BYTES = 8192
HEAD_S = 5.0
ANSWER_S = 10.0  # to make and send an answer
MOST_CONNECTIONS = 32
PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Answer(NamedTuple):
    """The response of a path."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"


Route = Callable[[str], Answer]  # takes the Accept header; called in a thread


class Endpoint:
    """A server for `routes` on a listening socket, until it is closed."""

    def __init__(self, listening: socket.socket, routes: Mapping[str, Route], name: str = "pgsched-endpoint") -> None:
        self._listening = listening
        self._routes = routes
        self._open = 0
        self._waiting: dict[asyncio.StreamWriter, str] = {}  # peers of connections without a whole head, oldest first
        self._loop = asyncio.new_event_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving; return when the thread has ended."""
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._ended.cancel)
        self._thread.join(3.0)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:  # an error must be seen
            logger.error("the endpoint for probes and metrics failed", exc_info=True)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        is_local = self._listening.family == socket.AF_UNIX
        start: Any = asyncio.start_unix_server if is_local else asyncio.start_server
        server = await start(self._connected, sock=self._listening, limit=HEAD_BYTES)
        async with server:
            with contextlib.suppress(asyncio.CancelledError):
                await self._ended

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self._waiting[writer] = peer_of(writer)
        try:
            if self._open <= MOST_CONNECTIONS or self._make_room():
                async with asyncio.timeout(HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                self._waiting.pop(writer, None)
                async with asyncio.timeout(ANSWER_S):
                    writer.write(await self._answer(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            self._waiting.pop(writer, None)
            writer.close()

    def _make_room(self) -> bool:
        """Close a connection without a whole request head; return False if all of them are being answered."""
        counts = Counter(self._waiting.values())
        most = max(counts, key=counts.__getitem__)
        oldest = next(writer for writer, peer in self._waiting.items() if peer == most)
        if len(self._waiting) == 1:
            return False
        del self._waiting[oldest]
        oldest.transport.abort()
        return True

    async def _answer(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return render_response(Answer(400, b"this is no HTTP request\n"))
        method, path = words[0], words[1].partition("?")[0]
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(sorted(self._routes))
            return render_response(Answer(404, f"there are {known}\n".encode()))
        if method not in ("GET", "HEAD"):
            return render_response(Answer(405, b"only GET and HEAD\n"))
        accept = next((line[7:].strip() for line in lines[1:] if line[:7].lower() == "accept:"), "")
        try:
            answer = await asyncio.to_thread(route, accept)
        except Exception as error:
            logger.error("an answer failed", path=path, exc_info=True)
            answer = Answer(503, f"{type(error).__name__}\n".encode())
        return render_response(answer, with_body=method == "GET")


def peer_of(writer: asyncio.StreamWriter) -> str:
    """Return the address of the client; empty for a local socket."""
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def render_response(answer: Answer, *, with_body: bool = True) -> bytes:
    """Return the answer as the bytes of an HTTP response."""
    head = (
        f"HTTP/1.1 {answer.status} {PHRASES.get(answer.status, 'OK')}\r\nContent-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")


def address(flag: str, text: str) -> tuple[str, int]:
    """Parse `:9464`, `127.0.0.1:9464` or `[::1]:9464` into host and port; an empty host means all addresses.

    Raises InputError.
    """
    host, sign, port = text.rpartition(":")
    bare = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not sign or bare or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise InputError(
            f"{flag}: expected [HOST]:PORT, such as :9464, 127.0.0.1:9464 or [::1]:9464, got {text!r}", flag
        )
    return host.strip("[]"), int(port)


def listen(flag: str, text: str) -> socket.socket:
    """Return a socket that listens at this address. Raises InputError where that is not possible."""
    host, port = address(flag, text)
    try:
        if not host and has_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
        family, _, _, _, where = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(where[:2], family=family, backlog=64)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise InputError(f"{flag}: cannot listen on {text}: {reason}", flag) from None


def has_ipv6() -> bool:
    """Check whether one socket can listen on all IPv4 and IPv6 addresses.

    A host may have IPv6 built in and turned off.
    """
    if not socket.has_dualstack_ipv6():
        return False
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
