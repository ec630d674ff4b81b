"""Pings: what is sent for which event, in which order, and that none delays a worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from pgsched.core.model import Claim, Outcome, Result
from pgsched.errors import InputError
from pgsched.worker.observers import pings
from pgsched.worker.observers.pings import Pings, event_url, run_uuid
from tests.support.http.answering import Server, answer, never, serving
from tests.support.waiting import wait_until

SLOT = datetime(2026, 5, 1, 2, tzinfo=UTC)
FAILED = Outcome(Result.FAILED, error="exit code 1: no disk", log_tail="loading\nno disk\n")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        for path in ("/x", "/x/start", "/x/fail"):
            started.answers[path] = answer()
        yield started


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pings]:
    """Yield pings that may go to loopback, and whose end does not wait for hosts that hang."""
    monkeypatch.setattr(pings, "CLOSE_S", 0.2)
    made = Pings(["127.0.0.0/8"])
    yield made
    made.close()


def claim(url: object, number: int = 17, job: int = 3, **columns: Any) -> Claim:
    given = {"job_id": job, "scheduled_at": SLOT, "options": {"ping_url": url}} | columns
    return Claim(number, uuid4(), 1, 3, "default", 5, "task", "t", {}, **given)


def paths(server: Server, count: int) -> list[str]:
    wait_until(lambda: len(server.seen) >= count, what="the pings")
    return [seen.path.partition("?")[0] for seen in server.seen]


def test_a_run_tells_its_start_and_its_success(server: Server, sender: Pings) -> None:
    mine = claim(server.url("/x"))
    sender.begun(mine)
    sender.ended(mine, Outcome(Result.SUCCEEDED, log_tail="done\n"), "succeeded")
    assert paths(server, 2) == ["/x/start", "/x"]
    first, second = server.seen
    assert {seen.method for seen in server.seen} == {"POST"}
    assert (first.body, first.headers["x-pgsched-run-id"]) == (b"", "17")
    assert second.body.decode() == "run 17 succeeded, attempt 1 of 3, slot 2026-05-01T02:00:00+00:00\ndone\n"
    assert first.path.partition("?")[2] == second.path.partition("?")[2] == f"rid={run_uuid(mine)}"


def test_a_dead_run_tells_its_error_and_the_end_of_its_output(server: Server, sender: Pings) -> None:
    sender.ended(claim(server.url("/x")), FAILED, "dead")
    assert paths(server, 1) == ["/x/fail"]
    lines = server.seen[0].body.decode().splitlines()
    assert lines[1:] == ["exit code 1: no disk", "loading", "no disk"]


@pytest.mark.parametrize("state", ["scheduled", "cancelled", "queued", "waiting", "lost"])
def test_of_other_ends_nothing_is_sent(server: Server, sender: Pings, state: str) -> None:
    sender.ended(claim(server.url("/x")), FAILED, state)
    sender.begun(claim(server.url("/x")))
    assert paths(server, 1) == ["/x/start"]


def test_attempts_of_a_run_share_an_id_that_no_other_run_has() -> None:
    one = claim("http://a.org")
    assert run_uuid(one) == run_uuid(one._replace(token=uuid4(), attempt=2))
    assert run_uuid(one) != run_uuid(one._replace(id=18))
    assert run_uuid(one).hex != one.token.hex, "the token is a secret"


@pytest.mark.parametrize(
    ("url", "event", "expected"),
    [
        ("https://hc-ping.com/ab-cd", "/start", "https://hc-ping.com/ab-cd/start?rid={0}"),
        ("https://hc-ping.com/ab-cd/", "/fail", "https://hc-ping.com/ab-cd/fail?rid={0}"),
        ("https://hc.example/key/slug?create=1#x", "/start", "https://hc.example/key/slug/start?create=1&rid={0}"),
        ("https://hc.example/key/", "", "https://hc.example/key/?rid={0}"),
    ],
)
def test_the_event_is_behind_the_path(url: str, event: str, expected: str) -> None:
    number = uuid4()
    assert event_url(url, event, number) == expected.format(number)


def test_long_output_is_cut_to_its_end(server: Server, sender: Pings) -> None:
    sender.ended(claim(server.url("/x")), Outcome(Result.SUCCEEDED, log_tail="é" * 20_000 + "end"), "succeeded")
    paths(server, 1)
    body = server.seen[0].body
    assert len(body) <= pings.BODY_BYTES
    assert body.decode().endswith("ééend")


def test_a_ping_goes_to_no_address_that_is_not_public(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pgsched")
    sender = Pings([])
    sender.begun(claim(server.url("/x")))
    wait_until(lambda: "a ping was dropped" in caplog.text, what="the line in the log")
    sender.close()
    assert server.connections == 0
    assert server.url("/x") not in caplog.text, "the URL is a secret"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "http://user:x@127.0.0.1/x", "http://[::1", "", 5, None])
def test_a_wrong_url_is_dropped(server: Server, sender: Pings, url: object) -> None:
    mine = claim(url)
    if sender.wants(mine):
        sender.begun(mine)
    sender.begun(claim(server.url("/x")))
    assert paths(server, 1) == ["/x/start"]


def test_a_redirect_is_not_followed(server: Server, sender: Pings) -> None:
    server.answers["/x/start"] = answer("302 Found", Location=server.url("/x"))
    sender.begun(claim(server.url("/x")))
    sender.begun(claim(server.url("/x"), job=4))
    assert paths(server, 2) == ["/x/start", "/x/start"]


def test_what_fails_is_tried_again_and_then_dropped(
    server: Server, sender: Pings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pings, "PAUSES_S", (0.01, 0.01))
    server.answers["/x/start"] = answer("503 Service Unavailable")
    server.answers["/x/fail"] = answer("404 Not Found")
    mine = claim(server.url("/x"))
    sender.begun(mine)
    sender.ended(mine, FAILED, "dead")
    sender.ended(mine, FAILED, "succeeded")
    assert paths(server, 5) == ["/x/start"] * 3 + ["/x/fail", "/x"]


@pytest.mark.long
def test_a_host_that_hangs_delays_neither_the_caller_nor_other_jobs(
    server: Server, sender: Pings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/x/start"] = never
    began = time.monotonic()
    for number in range(20):
        sender.begun(claim(server.url("/x"), number, job=4))
    assert time.monotonic() - began < 5.0
    sender.ended(claim(server.url("/x"), job=5), FAILED, "dead")
    wait_until(lambda: any(seen.path.startswith("/x/fail") for seen in server.seen), what="the other job's ping")


def test_jobs_that_hang_take_neither_the_place_nor_the_time_of_others(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three hundred pings to one host that never answers, of one job and of many; another host is told in time."""
    caplog.set_level(logging.WARNING, "pgsched")
    monkeypatch.setattr(pings, "ANSWER_S", 100.0)
    monkeypatch.setattr(pings, "CLOSE_S", 0.1)
    server.answers["/x/start"] = never
    sender = Pings(["127.0.0.0/8"], lambda host, port: ["127.0.0.1"])
    slow = server.url("/x", host="slow.example")
    for number in range(300):
        sender.begun(claim(slow, number, job=4))
    assert (sender._waiting, sender._dropped) == (pings.OF_A_JOB, 280)
    for number in range(300):
        sender.begun(claim(slow, number, job=100 + number))
    sender.ended(claim(server.url("/x"), job=8), FAILED, "dead")
    wait_until(lambda: any(seen.path.startswith("/x/fail") for seen in server.seen), what="the other job's ping")
    sender.close()
    assert "pings are dropped: too many wait" in caplog.text


def test_what_comes_too_late_is_not_sent(
    server: Server, sender: Pings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pgsched")
    monkeypatch.setattr(pings, "LATEST_S", -1.0)
    sender.begun(claim(server.url("/x")))
    monkeypatch.setattr(pings, "LATEST_S", 60.0)
    sender.ended(claim(server.url("/x")), FAILED, "dead")
    assert paths(server, 1) == ["/x/fail"]
    assert "others took too long before it" in caplog.text


def test_the_log_says_what_is_wrong_with_a_url(sender: Pings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pgsched")
    sender.begun(claim("http://user:x@127.0.0.1/x"))
    wait_until(lambda: "a ping was dropped" in caplog.text, what="the line in the log")
    assert "a URL must not contain a user name or password" in caplog.text
    assert "args.headers" not in caplog.text and "task:" not in caplog.text


def test_no_more_than_so_many_wait(server: Server, sender: Pings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pings, "MOST_WAITING", 3)
    server.answers["/x/start"] = never
    for number in range(9):
        sender.begun(claim(server.url("/x"), number, job=4))
    assert (sender._waiting, sender._dropped) == (3, 6)


def test_the_end_of_a_worker_waits_for_pings_but_not_for_long(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pings, "CLOSE_S", 0.2)
    sender = Pings(["127.0.0.1"])
    sender.begun(claim(server.url("/x")))
    sender.close()
    server.answers["/x/start"] = never
    sender = Pings(["127.0.0.1"])
    sender.begun(claim(server.url("/x")))
    began = time.monotonic()
    sender.close()
    assert time.monotonic() - began < 5.0


def test_a_wrong_entry_of_the_allow_list_is_refused() -> None:
    with pytest.raises(InputError, match="http-allow"):
        Pings(["10.0.0.1/8"])


def test_without_a_ping_there_is_no_thread(sender: Pings) -> None:
    assert not sender.wants(claim("x", options=None))
    assert not sender.wants(claim("x", options={"success_codes": [0]}))
    sender.close()
    assert sender._loop is None
