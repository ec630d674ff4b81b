"""Silent connections to the console are closed, and keep no other client out."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from pgsched.web import serving
from pgsched.web.security import request_guard
from pgsched.web.settings import Settings
from tests.support.waiting import wait_until
from tests.support.web.console import TOKEN

pytestmark = pytest.mark.packages


@pytest.fixture
def port(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a console that is served as by `pgsched web`, with short time limits."""
    monkeypatch.setattr(serving, "HEAD_S", 1.5)
    monkeypatch.setattr(request_guard, "BODY_S", 1.0)
    servers: list[uvicorn.Server] = []
    run = uvicorn.Server.run

    def noted(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        self.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        servers.append(self)
        run(self, sockets)

    monkeypatch.setattr(uvicorn.Server, "run", noted)
    said: list[str] = []
    thread = threading.Thread(target=serving.serve_console, args=(Settings("", port=0, token=TOKEN), dsn, said.append))
    thread.start()
    try:
        found = wait_until(lambda: re.search(r":(\d+)/", said[0]) if said else None, 30, "the address")
        wait_until(lambda: servers and servers[0].started, 30, "the console")
        yield int(found[1])
    finally:
        servers[0].should_exit = True
        thread.join(30)


def ask(port: int) -> int:
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    asked.request("GET", "/healthz")
    status = asked.getresponse().status
    asked.close()
    return status


def closed(peer: socket.socket, within_s: float) -> bool:
    """Return whether the console closes the connection in time."""
    peer.settimeout(within_s)
    try:
        while peer.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("boundless", ["MAX_PER_PEER", "MAX_WITHOUT_HEAD"])
def test_half_sent_heads_keep_no_client_out(boundless: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two limits makes room without the other, long before the time limit of a head ends."""
    monkeypatch.setattr(serving, "HEAD_S", 60.0)
    monkeypatch.setattr(serving, boundless, 10_000)
    with contextlib.ExitStack() as opened:
        for _ in range(serving.MAX_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), 20)).sendall(b"GET / HTTP/1.1\r\nHo")
        assert ask(port) == 200


class Peer:
    """A stand-in for a connection, which ConnectionLimits counts."""

    def __init__(self, doors: serving.ConnectionLimits, peer: str, *, says: bool) -> None:
        self.peer, self.transport, self.open = peer, self, True
        door: Any = self
        doors.come(door)
        if self.open:
            doors.wait(door)
        if self.open and says:
            doors.enter(door)

    def abort(self) -> None:
        self.open = False


def test_one_address_cannot_take_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_PER_PEER", 3)
    doors = serving.ConnectionLimits(lambda peer: peer == "192.0.2.1")
    one, silent, two = (Peer(doors, "192.0.2.7", says=says) for says in (True, False, True))
    more = Peer(doors, "192.0.2.7", says=True)
    assert [peer.open for peer in (one, silent, two, more)] == [True, False, True, True], "who says nothing makes room"
    assert not Peer(doors, "192.0.2.7", says=True).open
    assert Peer(doors, "192.0.2.8", says=True).open
    assert all(Peer(doors, "192.0.2.1", says=True).open for _ in range(9)), "many people share the proxy"


@pytest.mark.long
def test_a_missing_head_ends_the_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as silent:
        assert closed(silent, 15)
    with socket.create_connection(("127.0.0.1", port), 20) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"
        begun = time.monotonic()
        while time.monotonic() - begun < 15:  # send the next head one letter at a time
            try:
                slow.sendall(b"G")
            except ConnectionError:
                break
            if closed(slow, 0.3):
                break
        assert time.monotonic() - begun < 12


def test_a_missing_body_ends_the_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as slow:
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                     b"Content-Length: 1000\r\n\r\ncsrf=")  # fmt: skip
        slow.settimeout(15)
        assert slow.recv(12) == b"HTTP/1.1 408"
        assert closed(slow, 10)


@pytest.mark.long
def test_a_long_event_stream_is_not_cut_off(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as live:
        live.sendall(b"GET /runs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nAuthorization: Bearer "
                     + TOKEN.encode() + b"\r\n\r\n")  # fmt: skip
        live.settimeout(20)
        begun, body = time.monotonic(), b""
        while time.monotonic() - begun < 2 * serving.HEAD_S:
            piece = live.recv(65536)
            assert piece, "it was cut off"
            body += piece
        assert body.count(b"event: still") >= 2
