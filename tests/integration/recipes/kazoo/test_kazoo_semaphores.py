"""Kazoo's Semaphore and Election: what its documentation says of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from pgsched.recipes.kazoo import KazooClient
from pgsched.recipes.kazoo.exceptions import CancelledError, LockTimeout, SessionExpiredError
from tests.support.waiting import wait_until

Background = Callable[..., Future[Any]]


def test_up_to_max_leases_have_it_at_a_time(client: KazooClient, other: KazooClient, background: Background) -> None:
    first, second, third = [client.Semaphore("/sem", name, max_leases=2) for name in ("a", "b", "c")]
    assert first.acquire() and second.acquire()
    assert other.Semaphore("/sem", max_leases=2).acquire(blocking=False) is False
    waiting = background(third.acquire)
    wait_until(lambda: sorted(third.lease_holders()) == ["a", "b"])
    first.release()
    assert waiting.result(10) is True
    assert sorted(third.lease_holders()) == ["b", "c"]


def test_one_lease_is_the_default(client: KazooClient, other: KazooClient) -> None:
    with client.Semaphore("/sem"):
        assert other.Semaphore("/sem").acquire(blocking=False) is False


def test_the_block_waits_for_a_lease(client: KazooClient, other: KazooClient, background: Background) -> None:
    holder = client.Semaphore("/sem", "holder")
    holder.acquire()

    def work() -> list[str]:
        with other.Semaphore("/sem", "other") as mine:
            return mine.lease_holders()

    working = background(work)
    holder.release()
    assert working.result(10) == ["other"]


def test_an_object_takes_no_second_lease(client: KazooClient, other: KazooClient) -> None:
    semaphore = client.Semaphore("/sem", max_leases=2)
    assert semaphore.acquire() and semaphore.acquire()
    assert other.Semaphore("/sem", max_leases=2).acquire(blocking=False) is True


def test_a_second_thread_that_asks_with_the_same_object_waits_no_longer_than_it_said(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    mine, semaphore = client.Semaphore("/sem"), other.Semaphore("/sem")
    mine.acquire()
    waiting = background(semaphore.acquire)
    wait_until(lambda: len(client.Lock("/sem").contenders()) == 2)
    assert semaphore.acquire(blocking=False) is False
    with pytest.raises(LockTimeout):
        semaphore.acquire(timeout=0.1)
    mine.release()
    assert waiting.result(10) is True


def test_another_number_of_leases_is_refused_while_it_is_in_use(client: KazooClient, other: KazooClient) -> None:
    first = client.Semaphore("/sem", max_leases=2)
    first.acquire()
    with pytest.raises(ValueError, match="2"):
        other.Semaphore("/sem", max_leases=3).acquire()
    first.release()
    assert other.Semaphore("/sem", max_leases=3).acquire(), "nobody uses it: its number may change"


def test_a_timeout_ends_the_wait_for_a_lease(client: KazooClient, other: KazooClient) -> None:
    client.Semaphore("/sem").acquire()
    with pytest.raises(LockTimeout):
        other.Semaphore("/sem").acquire(timeout=0.05)


def test_another_thread_cancels_the_wait_for_a_lease(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    holder, semaphore = client.Semaphore("/sem"), other.Semaphore("/sem", "waits")
    holder.acquire()
    waiting = background(semaphore.acquire)
    line = client.Lock("/sem")  # shows the line of the name
    wait_until(lambda: line.contenders() == ["", "waits"])
    semaphore.cancel()
    with pytest.raises(CancelledError):
        waiting.result(10)
    holder.release()
    semaphore.cancel()
    assert semaphore.acquire(), "acquire forgets a cancel that came before it"


def test_release_returns_whether_there_was_a_lease(client: KazooClient) -> None:
    semaphore = client.Semaphore("/sem")
    assert semaphore.release() is False
    semaphore.acquire()
    assert semaphore.is_acquired and semaphore.release() is True
    assert not semaphore.is_acquired


def test_holders_without_an_identifier_are_blank(client: KazooClient) -> None:
    semaphore = client.Semaphore("/sem")
    assert semaphore.lease_holders() == []
    semaphore.acquire()
    assert semaphore.lease_holders() == [""]


def test_a_lease_is_lost_with_the_session(client: KazooClient, expire: Callable[[KazooClient], None]) -> None:
    semaphore = client.Semaphore("/sem")
    semaphore.acquire()
    expire(client)
    assert not semaphore.is_acquired
    with pytest.raises(SessionExpiredError):
        semaphore.release()
    assert semaphore.acquire(timeout=10)


# ---- elections


def test_run_calls_the_function_when_the_election_is_won(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    end, seen = threading.Event(), []
    first, second = client.Election("/leader", "first"), other.Election("/leader", "second")
    leading = background(first.run, lambda: end.wait(20))
    wait_until(lambda: first.contenders() == ["first"])
    waiting = background(second.run, lambda *args, **named: seen.append((args, named)), 1, two=2)
    wait_until(lambda: first.contenders() == ["first", "second"])
    assert not seen and not waiting.done()
    end.set()
    assert leading.result(10) is None and waiting.result(10) is None
    assert seen == [((1,), {"two": 2})]
    assert first.contenders() == []


def test_run_ends_with_the_error_of_the_function(client: KazooClient) -> None:
    election = client.Election("/leader")
    with pytest.raises(ZeroDivisionError):
        election.run(lambda: 1 / 0)
    assert election.contenders() == []


def test_only_functions_lead(client: KazooClient) -> None:
    with pytest.raises(ValueError, match="func"):
        client.Election("/leader").run("me")  # type: ignore[arg-type]


def test_cancel_ends_the_wait_of_run_without_an_error(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    client.Lock("/leader", "first").acquire()
    election = other.Election("/leader", "second")
    seen: list[int] = []
    waiting = background(election.run, seen.append, 1)
    wait_until(lambda: election.contenders() == ["first", "second"])
    election.cancel()
    assert waiting.result(10) is None
    wait_until(lambda: election.contenders() == ["first"])
    assert seen == []


def test_cancel_does_not_interrupt_the_leader(client: KazooClient, background: Background) -> None:
    election, end = client.Election("/leader", "first"), threading.Event()
    seen: list[bool] = []
    leading = background(election.run, lambda: seen.append(end.wait(20)))
    wait_until(lambda: election.lock.is_acquired)
    election.cancel()
    assert not leading.done()
    end.set()
    leading.result(10)
    assert seen == [True]


@pytest.mark.long
def test_a_lost_lead_is_an_error_at_the_end(client: KazooClient, expire: Callable[[KazooClient], None]) -> None:
    with pytest.raises(SessionExpiredError):
        client.Election("/leader").run(expire, client)
