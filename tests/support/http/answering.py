"""A small HTTP server in a thread, on loopback, that answers as a test says: also badly, slowly, or without end."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

Say = Callable[[socket.socket], None]


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; the names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    names: tuple[str, ...]


@dataclass
class Server:
    """The server.

    `answers` maps each path to the bytes to send, or to a function that gets the connection. After the function, the
    connection is closed.
    """

    listener: socket.socket
    tls: ssl.SSLContext | None = None
    answers: dict[str, bytes | Say] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    left: int = 0  # connections that the client closed before or during an answer

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http{'s' if self.tls else ''}://{host}:{self.port}{path}"

    def run(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                link, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        link.settimeout(30)
        try:
            if self.tls is not None:
                link = self.tls.wrap_socket(link, server_side=True)
            with link, link.makefile("rb") as reader:
                while (line := reader.readline()).strip():
                    request = read(line, reader)
                    self.seen.append(request)
                    reply = self.answers.get(request.path.partition("?")[0], answer("404 Not Found"))
                    if not isinstance(reply, bytes):
                        return reply(link)
                    link.sendall(reply)
        except OSError:
            self.left += 1


def read(line: bytes, reader) -> Seen:  # type: ignore[no-untyped-def]
    """Read the rest of the request that begins with this line, and return the request."""
    method, path, _ = line.decode("latin-1").split(" ", 2)
    headers, names = {}, []
    while text := reader.readline().decode("latin-1").strip():
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
        names.append(name.lower())
    return Seen(method, path, headers, reader.read(int(headers.get("content-length", 0))), tuple(names))


def answer(status: str = "200 OK", body: bytes | str = b"", **headers: str) -> bytes:
    """Return a whole answer; underscores in names of headers become hyphens, such as `content_type`."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


@contextlib.contextmanager
def serving(tls: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> Iterator[Server]:
    """Yield a running server."""
    with socket.create_server((address, 0), backlog=50) as listener:
        server = Server(listener, tls)
        threading.Thread(target=server.run, daemon=True).start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends the thread's `accept`


def never(link: socket.socket) -> None:
    """Send nothing until the client closes the connection."""
    if link.recv(1) == b"":
        raise ConnectionResetError
