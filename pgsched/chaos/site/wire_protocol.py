"""Messages of a PostgreSQL connection: enough of the protocol to see a client's statements and the server's answers.

Invariant: nothing is changed and nothing is lost. The pieces that come out, joined, are the bytes that went in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

SSL_REQUEST, CANCEL_REQUEST, GSS_REQUEST = 80877103, 80877102, 80877104
HEAD = struct.Struct("!cI")


@dataclass(frozen=True, slots=True)
class Request:
    """The bytes that a client sent up to a point at which the server answers, and the statements in them.

    `answered`: the server sends a message when it has finished the request.
    """

    data: bytes
    statements: tuple[str, ...] = ()
    answered: bool = True


@dataclass
class Frontend:
    """The client's side of one connection.

    `application`: the application_name of the startup message.
    `encrypted`: the server has accepted encryption; statements cannot be read.
    `has_started`: the startup message has been read.
    """

    application: str = ""
    encrypted: bool = False
    has_started: bool = False
    _unread: bytes = b""
    _open: list[bytes] = field(default_factory=list)
    _asked: list[str] = field(default_factory=list)
    _prepared: dict[bytes, str] = field(default_factory=dict)

    def feed(self, data: bytes) -> Iterator[Request]:
        """Yield the requests that these bytes complete. With encryption, yield the bytes unchanged."""
        if self.encrypted:
            yield Request(data, answered=False)
            return
        self._unread += data
        if not self.has_started:
            yield from self._greet()
        if self.has_started:
            yield from self._messages()

    def _greet(self) -> Iterator[Request]:
        while not self.has_started and len(self._unread) >= 8:
            size, code = struct.unpack_from("!II", self._unread)
            if len(self._unread) < size:
                return
            packet, self._unread = self._unread[:size], self._unread[size:]
            if code not in (SSL_REQUEST, GSS_REQUEST):
                self.has_started = True
                words = packet[8:].split(b"\0")
                named = dict(zip(words[::2], words[1::2], strict=False))
                self.application = named.get(b"application_name", b"").decode(errors="replace")
            yield Request(packet, answered=code not in (SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST))

    def _messages(self) -> Iterator[Request]:
        at, data = 0, self._unread
        while len(data) - at >= 5:
            kind, size = HEAD.unpack_from(data, at)
            if len(data) - at < size + 1:
                break
            message = data[at : at + size + 1]
            at += size + 1
            self._open.append(message)
            self._look(kind, message[5:])
            if kind in b"QSFpXHdcf":  # query, sync, function call, password, terminate, flush, copied data and its end
                yield self._request(answered=kind in b"QSF")
        self._unread = data[at:]

    def _look(self, kind: bytes, body: bytes) -> None:
        """Record the statement that a message names: the text of a query, or what a Bind refers to."""
        if kind == b"Q":
            self._asked.append(body.rstrip(b"\0").decode(errors="replace"))
        elif kind == b"P":
            name, text = body.split(b"\0", 2)[:2]
            self._prepared[name] = text.decode(errors="replace")
        elif kind == b"B":
            name = body.split(b"\0", 2)[1]
            self._asked.append(self._prepared.get(name, ""))

    def _request(self, *, answered: bool) -> Request:
        request = Request(b"".join(self._open), tuple(self._asked), answered)
        self._open, self._asked = [], []
        return request


class Backend:
    """The server's side of one connection: `ready` counts how often it was ready for the next request."""

    def __init__(self) -> None:
        self.ready = 0
        self._skip = 0  # bytes of the current message that have not arrived yet
        self._head = b""

    def feed(self, data: bytes) -> None:
        """Count the ReadyForQuery messages. A byte that answers a request for encryption must not be passed here."""
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                at, self._skip = at + step, self._skip - step
                continue
            need = 5 - len(self._head)
            self._head += data[at : at + need]
            at += need
            if len(self._head) == 5:
                kind, size = HEAD.unpack(self._head)
                self.ready += kind == b"Z"
                self._skip, self._head = size - 4, b""
