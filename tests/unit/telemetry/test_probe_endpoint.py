"""The endpoint answers probes even if other peers hold many idle connections to it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from pgsched.telemetry import endpoint
from pgsched.telemetry.endpoint import Answer, Endpoint


@pytest.fixture
def port() -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    served = Endpoint(listening, {"/healthz": lambda accept: Answer(200, b"ok\n")})
    served.start()
    yield listening.getsockname()[1]
    served.close()


def probe(port: int, source: str = "127.0.0.1") -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10, (source, 0)) as asked:
        asked.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        answer = b""
        while piece := asked.recv(4096):
            answer += piece
        return answer


def test_probes_are_answered_despite_many_idle_connections(port: int) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(3 * endpoint.MOST_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), 10)).sendall(b"GET /heal")
        assert [probe(port)[:15] for _ in range(40)] == [b"HTTP/1.1 200 OK"] * 40


def test_the_peer_with_the_most_idle_connections_loses_them_first(port: int) -> None:
    with contextlib.ExitStack() as opened:
        patient = opened.enter_context(socket.create_connection(("127.0.0.1", port), 10, ("127.0.0.2", 0)))
        for _ in range(2 * endpoint.MOST_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), 10)).sendall(b"GET")
        patient.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert patient.recv(15) == b"HTTP/1.1 200 OK"
