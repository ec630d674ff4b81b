"""HTTP jobs: the request that the server receives, and the outcome that its response gives."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import pytest

from pgsched.core.model import Outcome, Result
from pgsched.errors import InputError
from pgsched.execute.http.executor import HttpExecutor
from pgsched.execute.http.request import read_request
from pgsched.execute.http.response import BODY_BYTES, LOG_CHARACTERS
from tests.support.executing import SLOT, claim
from tests.support.http.answering import Server, answer
from tests.support.http.asking_http import HERE, http
from tests.support.http.http_wrong import RIGHT, WRONG_ARGS, WRONG_URLS
from tests.support.waiting import wait_until


def answered(server: Server, text: bytes, args: Any = None) -> Outcome:
    """Return the outcome of a request that the server answers with `text`."""
    server.answers["/"] = text
    return http(server.url(), args)


# ---- requests


def test_a_request_that_is_answered_with_2xx_succeeds(server: Server) -> None:
    outcome = answered(server, answer("201 Created", '{"id": 5, "name": "\u00fc"}', content_type="application/json"))
    assert (outcome.result, outcome.error) == (Result.SUCCEEDED, None)
    assert outcome.value["status"] == 201 and outcome.value["body"] == {"id": 5, "name": "\u00fc"}
    assert outcome.value["headers"] == {"content-type": "application/json", "content-length": "23"}


def test_a_request_names_its_run_attempt_and_slot_in_headers(server: Server) -> None:
    http(server.url(), attempt=2)
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/", b"")
    assert seen.headers["idempotency-key"] == seen.headers["x-pgsched-run-id"] == "7"
    assert seen.headers["x-pgsched-attempt"] == "2" and seen.headers["x-pgsched-scheduled-at"] == SLOT.isoformat()
    assert seen.headers["host"] == f"127.0.0.1:{server.port}" and seen.headers["user-agent"] == "pgsched"


def test_the_idempotency_key_is_the_same_for_all_attempts_of_one_run(server: Server) -> None:
    for attempt in (1, 2):
        http(server.url(), attempt=attempt)
    http(server.url(), id=8, scheduled_at=None)
    assert [seen.headers["idempotency-key"] for seen in server.seen] == ["7", "7", "8"]
    assert "x-pgsched-scheduled-at" not in server.seen[2].headers


def test_arguments_shape_the_request(server: Server) -> None:
    args = {"method": "put", "headers": {"X-A": "b; c", "Authorization": "Bearer t"}, "json": {"n": [1, "\u00fc"]},
            "params": {"q": "a&b c", "n": [1, True]}}  # fmt: skip
    assert http(server.url("/?z=1#part"), args).result is Result.SUCCEEDED
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("PUT", "/?z=1&q=a%26b+c&n=1&n=true")
    assert json.loads(seen.body) == {"n": [1, "\u00fc"]} and seen.headers["content-type"] == "application/json"
    assert (seen.headers["x-a"], seen.headers["authorization"]) == ("b; c", "Bearer t")


@pytest.mark.parametrize("text", ["; rm -rf /", "$(id)", "--help", "two\r\nlines: x", "", "\u00e9\u2603"])
def test_hostile_texts_arrive_as_they_are(server: Server, text: str) -> None:
    http(server.url(), {"body": text, "params": {"q": text}, "headers": {"Content-Type": "text/csv"}})
    (seen,) = server.seen
    assert seen.body.decode() == text and seen.headers["content-type"] == "text/csv"
    assert "\n" not in seen.path and len(server.seen) == 1


@pytest.mark.parametrize(("url", "error"), WRONG_URLS)
def test_a_wrong_url_fails_for_good(url: str, error: str) -> None:
    outcome = http(url)
    assert (outcome.result, outcome.retry, outcome.error) == (Result.FAILED, False, error)


@pytest.mark.parametrize(("args", "error"), WRONG_ARGS)
def test_wrong_arguments_fail_for_good_and_name_the_value(args: Any, error: str) -> None:
    outcome = http("http://127.0.0.1:1/", args)
    assert (outcome.result, outcome.retry, outcome.error) == (Result.FAILED, False, error)


@pytest.mark.parametrize(("url", "args"), RIGHT)
def test_valid_arguments_are_accepted(url: str, args: Any) -> None:
    assert read_request(claim("http", url, args)).url.startswith(url.partition("#")[0])


def test_a_host_name_that_is_too_long_for_dns_is_a_failure() -> None:
    outcome = http(f"http://{'x' * 70}.example/")
    assert outcome.result is Result.FAILED and outcome.error


def test_the_jobs_own_headers_replace_the_usual_ones(server: Server) -> None:
    args = {"headers": {"user-agent": "mine", "ACCEPT": "text/csv", "content-type": "text/csv"}, "body": "x"}
    assert http(server.url(), args).result is Result.SUCCEEDED
    (seen,) = server.seen
    assert (seen.headers["user-agent"], seen.headers["accept"]) == ("mine", "text/csv")
    assert seen.headers["content-type"] == "text/csv" and len(seen.names) == len(set(seen.names))


# ---- responses


@pytest.mark.parametrize(
    ("status", "retry"),
    [(400, False), (401, False), (404, False), (408, True), (410, False), (425, True), (429, True), (500, True),
     (502, True), (503, True), (302, True)],
)  # fmt: skip
def test_a_status_that_is_not_expected_is_a_failure(server: Server, status: int, retry: bool) -> None:
    outcome = answered(server, answer(f"{status} Own\x01Words", "the disk is full\nmore"))
    assert (outcome.result, outcome.retry, outcome.retry_in) == (Result.FAILED, retry, None)
    assert outcome.error is not None and outcome.error.startswith(f"HTTP {status} ")
    assert outcome.error.endswith(": the disk is full") and "Own" not in outcome.error
    assert outcome.log_tail == "the disk is full\nmore"


def test_a_failure_names_the_status_in_words(server: Server) -> None:
    assert answered(server, answer("503 x")).error == "HTTP 503 Service Unavailable"
    page = answer("500 x", "<html><p>long page", content_type="text/html")
    assert answered(server, page).error == "HTTP 500 Internal Server Error"
    assert answered(server, answer("599 x")).error == "HTTP 599"


@pytest.mark.parametrize(
    ("expect", "status", "result"),
    [(["2xx", 404], 404, Result.SUCCEEDED), ([200], 204, Result.FAILED), (["4xx"], 200, Result.FAILED),
     ([302], 302, Result.SUCCEEDED)],
)  # fmt: skip
def test_the_job_chooses_the_statuses_that_count_as_success(
    server: Server, expect: list[Any], status: int, result: Result
) -> None:
    assert answered(server, answer(f"{status} x"), {"expect": expect}).result is result


@pytest.mark.parametrize(
    ("status", "given", "seconds"),
    [
        (503, {"retry_after": "120"}, 120),
        (429, {"retry_after": " 7 "}, 7),
        (429, {"retry_after": "9" * 400}, 86_400),
        (429, {"retry_after": "Wed, 01 May 2024 12:05:00 GMT", "date": "Wed, 01 May 2024 12:00:00 GMT"}, 300),
        (503, {"retry_after": "Sat, 01 Jun 2024 12:05:00 GMT", "date": "Wed, 01 May 2024 12:00:00 GMT"}, 86_400),
        (503, {"retry_after": "Wed, 01 May 2024 12:00:00 GMT", "date": "Wed, 01 May 2024 12:05:00 GMT"}, None),
        (503, {"retry_after": "Wed, 01 May 2024 12:00:00 GMT"}, None),
        (503, {"retry_after": "Wed, 01 May 2024 12:00:00", "date": "Wed, 01 May 2024 11:00:00 GMT"}, None),
        (503, {"retry_after": "0"}, None),
        (503, {"retry_after": "-5"}, None),
        (503, {"retry_after": "\u00b2"}, None),
        (503, {"retry_after": "soon"}, None),
        (503, {"retry_after": "Fri, 99 Foo 99999 99:99:99 GMT", "date": "x"}, None),
        (500, {"retry_after": "120"}, None),
    ],
)
def test_retry_after_delays_the_next_attempt_by_at_most_a_day(
    server: Server, status: int, given: dict[str, str], seconds: int | None
) -> None:
    outcome = answered(server, answer(f"{status} x", **given))
    assert outcome.retry
    assert outcome.retry_in == (None if seconds is None else timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("body", "kind", "kept"),
    [
        (b"", "application/json", None),
        (b"a\xff\x00b", "text/plain", "a\ufffd\ufffdb"),
        (b"[1", "application/json", "[1"),
        (b"NaN", "application/json", "NaN"),
        (b'"\\u0000"', "application/json", '"\\u0000"'),
        (b'"\\ud800"', "application/problem+json", '"\\ud800"'),
        (b"[" * 30_000, "application/json", "[" * 30_000),
        (b"9" * 5_000, "application/json", "9" * 5_000),
        (b"\xff{}", "application/json; charset=x", "\ufffd{}"),
        (b'{"a": 1}', "APPLICATION/VND.API+JSON ; x=y", {"a": 1}),
        (b"7", "text/plain", "7"),
    ],
)
def test_a_body_is_kept_as_json_or_as_text(server: Server, body: bytes, kind: str, kept: Any) -> None:
    outcome = answered(server, answer(body=body, content_type=kind))
    assert (outcome.result, outcome.value["body"]) == (Result.SUCCEEDED, kept)
    assert "body_cut" not in outcome.value


def test_odd_headers_are_kept_as_far_as_they_are_text(server: Server) -> None:
    outcome = answered(server, answer(etag="\xff\xe9" * 400, set_cookie="a=b"))
    assert set(outcome.value["headers"]) == {"content-length", "etag"} and len(outcome.value["headers"]["etag"]) == 500


@pytest.mark.parametrize("status", ["200 OK", "500 x"])
def test_a_body_without_end_is_cut_and_marked_as_cut(server: Server, status: str) -> None:
    def flood(link: socket.socket) -> None:
        link.sendall(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n[".encode())
        while True:
            link.sendall(b"1, " * 20_000)

    server.answers["/"] = flood
    outcome = http(server.url(), {"read_timeout_s": 20})
    if status == "200 OK":
        assert outcome.value["body_cut"] is True and len(outcome.value["body"]) == BODY_BYTES
    else:
        assert outcome.log_tail is not None and len(outcome.log_tail) == LOG_CHARACTERS
    wait_until(lambda: server.left, what="the server to be left alone")


def test_a_compressed_body_that_was_not_asked_for_stays_compressed(server: Server) -> None:
    outcome = answered(server, answer(body=b"\x1f\x8b\x08" + b"\0" * 50, content_encoding="gzip"))
    assert server.seen[0].headers["accept-encoding"] == "identity"
    assert outcome.value["headers"]["content-encoding"] == "gzip" and len(outcome.value["body"]) == 53


@pytest.mark.parametrize(
    "text", [b"HTTP/1.1 200 OK\r\n" + b"X-Flood: 1\r\n" * 100_000, b"SSH-2.0-OpenSSH\r\n\r\n", b"",
             b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)  # fmt: skip
def test_an_invalid_response_is_a_failure_that_is_retried(server: Server, text: bytes) -> None:
    def say(link: socket.socket) -> None:
        link.sendall(text)

    server.answers["/"] = say
    outcome = http(server.url())
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert outcome.error is not None and outcome.error.startswith("HTTP: ")


def test_a_response_that_switches_protocols_frees_its_connection(server: Server) -> None:
    switch = b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\nmore"
    server.answers |= {"/switch": lambda link: link.sendall(switch), "/early": answer("413 x")}

    async def main() -> list[Outcome]:
        executor = HttpExecutor(HERE, 1)
        given = [("/switch", {}), ("/early", {"body": "x" * 900_000}), ("/", {})]
        found = [await executor.execute(claim("http", server.url(path), args | {"read_timeout_s": 5}))
                 for path, args in given]  # fmt: skip
        await executor.close()
        return found

    switched, early, last = asyncio.run(main())
    assert switched.result is Result.FAILED and early.error == f"HTTP 413 {HTTPStatus(413).phrase}"
    assert last.result is Result.SUCCEEDED


def test_a_refused_connection_is_a_failure_that_is_retried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    outcome = http(f"http://127.0.0.1:{port}/")
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert outcome.error == f"HTTP: ConnectError: cannot connect to 127.0.0.1 port {port}: connection refused"


# ---- httpx is an extra


def test_without_httpx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pgsched.execute.http.client", raising=False)
    monkeypatch.delattr("pgsched.execute.http.client", raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(InputError, match=r"allow: http needs the package httpx: pip install 'pgsched\[http\]'"):
        HttpExecutor([], 1)
