"""Connections to the console that say nothing keep nobody out, and are closed."""

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
from pgsched.web.security import guard
from pgsched.web.settings import Settings
from tests.support.waiting import wait_until
from tests.support.web.console import TOKEN

pytestmark = pytest.mark.packages


@pytest.fixture
def port(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A console that is served as `pgsched web` does, with short limits."""
    monkeypatch.setattr(serving, "HEAD_S", 1.5)
    monkeypatch.setattr(guard, "BODY_S", 1.0)
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
    """Does the console close the connection in time?"""
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
def test_halves_of_heads_keep_nobody_out(boundless: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two limits makes room without the other, and long before the time for a head is over."""
    monkeypatch.setattr(serving, "HEAD_S", 60.0)
    monkeypatch.setattr(serving, boundless, 10_000)
    with contextlib.ExitStack() as opened:
        for _ in range(serving.MAX_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), 20)).sendall(b"GET / HTTP/1.1\r\nHo")
        assert ask(port) == 200


class Peer:
    """A connection, for what counts them."""

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


def test_one_address_does_not_take_the_connections_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_PER_PEER", 3)
    doors = serving.ConnectionLimits(lambda peer: peer == "192.0.2.1")
    one, silent, two = (Peer(doors, "192.0.2.7", says=says) for says in (True, False, True))
    more = Peer(doors, "192.0.2.7", says=True)
    assert [peer.open for peer in (one, silent, two, more)] == [True, False, True, True], "who says nothing makes room"
    assert not Peer(doors, "192.0.2.7", says=True).open
    assert Peer(doors, "192.0.2.8", says=True).open
    assert all(Peer(doors, "192.0.2.1", says=True).open for _ in range(9)), "many people share the proxy"


def test_a_head_that_does_not_come_ends_the_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as silent:
        assert closed(silent, 15)
    with socket.create_connection(("127.0.0.1", port), 20) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"
        begun = time.monotonic()
        while time.monotonic() - begun < 15:  # the next head, a letter at a time
            try:
                slow.sendall(b"G")
            except ConnectionError:
                break
            if closed(slow, 0.3):
                break
        assert time.monotonic() - begun < 12


def test_a_body_that_does_not_come_is_not_waited_for(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as slow:
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                     b"Content-Length: 1000\r\n\r\ncsrf=")  # fmt: skip
        slow.settimeout(15)
        assert slow.recv(12) == b"HTTP/1.1 408"
        assert closed(slow, 10)


def test_an_answer_that_takes_long_is_not_cut_off(port: int) -> None:
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
