"""Webhooks for alerts: whatever the server answers, a delivery ends in time and has a result."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pgsched.errors import InputError
from pgsched.leader.alerting import sinks
from pgsched.leader.alerting.sinks import NotDelivered, make_webhook, sentence, webhook_name

TOLD = {"id": "pgsched-alert-1", "event": "opened", "text": "[alert] x"}


@pytest.fixture
def answering() -> Iterator[Callable[..., tuple[str, list[bytes]]]]:
    """Return a function that starts a server, and returns its address and the requests that it received.

    The server answers with `answer`, and goes on with `drip`, one byte every 0.1 s.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def start(answer: bytes, drip: bytes = b"") -> tuple[str, list[bytes]]:
        asked: list[bytes] = []

        def serve() -> None:
            with listening.accept()[0] as conn:
                head = b""
                while b'"opened"' not in head:
                    head += conn.recv(65_536)
                asked.append(head)
                try:
                    conn.sendall(answer)
                    for byte in drip:
                        if over.wait(0.1):
                            break
                        conn.sendall(bytes([byte]))
                except OSError:
                    pass

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listening.getsockname()[1]}", asked

    yield start
    over.set()
    listening.close()


def test_a_2xx_status_is_enough_although_the_body_does_not_end(answering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "WEBHOOK_S", 2.0)
    where, _ = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x" * 1000)
    began = time.monotonic()
    make_webhook(f"http://{where}/")(TOLD)
    assert time.monotonic() - began < 30


def test_a_slow_answer_is_cut_off_at_the_time_limit(answering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes within the limit, but the whole answer does not."""
    monkeypatch.setattr(sinks, "WEBHOOK_S", 0.5)
    where, _ = answering(b"HTTP/1.1 ", b" " * 600)
    began = time.monotonic()
    with pytest.raises(NotDelivered, match=r"no answer within 0\.5 s"):
        make_webhook(f"http://{where}/")(TOLD)
    assert time.monotonic() - began < 30


def test_a_user_and_password_in_the_url_are_sent_as_basic_authorization(answering: Any) -> None:
    where, asked = answering(b"HTTP/1.1 204 No Content\r\n\r\n")
    make_webhook(f"http://eve:a%20b@{where}/hook?x=1")(TOLD)
    assert b"POST /hook?x=1 HTTP/1.1\r\n" in asked[0]
    assert b"Authorization: Basic ZXZlOmEgYg==\r\n" in asked[0]  # eve:a b


@pytest.mark.parametrize("status", [301, 307, 404, 500])
def test_any_status_but_2xx_is_a_failed_delivery(answering: Any, status: int) -> None:
    where, _ = answering(f"HTTP/1.1 {status} No\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".encode())
    with pytest.raises(NotDelivered, match=f"it answered {status}"):
        make_webhook(f"http://{where}/")(TOLD)


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://h:99999/", "http://exa mple/", "http://h/ü", "http://h/a b", "ftp://h/", "http://", "h"],
)
def test_a_url_that_cannot_be_called_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(InputError, match="alert-webhook"):
        webhook_name(url)


def test_the_sentence_of_an_alert_is_one_line_without_control_characters() -> None:
    row = {"event": "opened", "job": "a", "kind": "failures", "details": "it\n said \x1b[31mno\x00"}
    assert sentence(row) == r"[alert] job a: failures: it said \x1b[31mno\x00"
    assert sentence(row | {"job": "a\u202eb\u200bc"}).startswith(r"[alert] job a\u202eb\u200bc: ")
