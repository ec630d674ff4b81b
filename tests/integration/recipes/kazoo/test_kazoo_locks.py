"""Kazoo's Lock, ReadLock and WriteLock: what its documentation says of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from pgsched.recipes import kazoo
from pgsched.recipes.kazoo import KazooClient, Lock
from pgsched.recipes.kazoo.exceptions import (
    BadArgumentsError,
    CancelledError,
    ConnectionClosedError,
    LockTimeout,
    SessionExpiredError,
    UnimplementedError,
)
from tests.support.waiting import wait_until

Background = Callable[..., Future[Any]]


def lines_up(lock: Lock, *identifiers: str) -> None:
    wait_until(lambda: lock.contenders() == [*identifiers], what=f"the line {identifiers}")


def test_the_block_waits_for_the_lock(client: KazooClient, other: KazooClient, background: Background) -> None:
    holder, lock = client.Lock("/locks/a", "first"), other.Lock("/locks/a", "second")
    holder.acquire()

    def work() -> bool:
        with lock:
            return lock.is_acquired

    working = background(work)
    lines_up(holder, "first", "second")
    assert not working.done()
    holder.release()
    assert working.result(10)
    assert not lock.is_acquired and lock.contenders() == []


def test_the_class_takes_the_client_first(client: KazooClient) -> None:
    with kazoo.Lock(client, "/locks/a", "me") as lock:
        assert lock.contenders() == ["me"]


def test_only_one_contender_has_the_lock(client: KazooClient, other: KazooClient) -> None:
    lock = client.Lock("/locks/a")
    assert lock.acquire() is True
    assert other.Lock("/locks/a").acquire(blocking=False) is False
    assert other.Lock("/locks/b").acquire(blocking=False) is True


def test_an_object_that_has_the_lock_waits_for_it_again(client: KazooClient, background: Background) -> None:
    lock = client.Lock("/locks/a", "me")
    lock.acquire()
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(timeout=0.05) is False
    again = background(lock.acquire)
    assert lock.is_acquired and lock.contenders() == ["me"] and not again.done()
    lock.release()
    assert again.result(10) is True


def test_threads_share_a_lock_object(client: KazooClient, background: Background) -> None:
    lock, inside, most = client.Lock("/locks/a"), [], []

    def work() -> None:
        with lock:
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    for one in [background(work) for _ in range(8)]:
        one.result(20)
    assert most == [1] * 8


def test_without_blocking_it_returns_at_once_whether_it_has_the_lock(client: KazooClient, other: KazooClient) -> None:
    first, second = client.Lock("/locks/a", "first"), other.Lock("/locks/a", "second")
    assert first.acquire(blocking=False) is True
    assert second.acquire(blocking=False) is False
    assert first.contenders() == ["first"]


def test_a_timeout_ends_the_wait_with_an_error(client: KazooClient, other: KazooClient) -> None:
    first, second = client.Lock("/locks/a", "first"), other.Lock("/locks/a", "second")
    first.acquire()
    with pytest.raises(LockTimeout):
        second.acquire(timeout=0.1)
    assert not second.is_acquired
    lines_up(first, "first")
    first.release()
    assert second.acquire(timeout=10) is True


def test_another_thread_cancels_a_wait(client: KazooClient, other: KazooClient, background: Background) -> None:
    first, second = client.Lock("/locks/a", "first"), other.Lock("/locks/a", "second")
    first.acquire()
    waiting = background(second.acquire)
    lines_up(first, "first", "second")
    second.cancel()
    with pytest.raises(CancelledError):
        waiting.result(10)
    lines_up(first, "first")
    first.release()
    assert second.acquire(timeout=10) is True, "a lock that was cancelled can be used again"


def test_a_cancel_before_the_wait_ends_it(client: KazooClient) -> None:
    lock = client.Lock("/locks/a")
    lock.cancel()
    with pytest.raises(CancelledError):
        lock.acquire()
    lines_up(lock)
    assert lock.acquire()


def test_release_gives_the_lock_to_the_next_in_line(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    holder = client.Lock("/locks/a", "holder")
    holder.acquire()
    locks = [other.Lock("/locks/a", f"waiter {number}") for number in range(3)]
    names = ["holder"]
    waiting = []
    for number, lock in enumerate(locks):
        waiting.append(background(lock.acquire))
        names.append(f"waiter {number}")
        lines_up(holder, *names)
    previous: Lock = holder
    for lock, one in zip(locks, waiting, strict=True):
        assert not one.done()
        assert previous.release() is True
        assert one.result(10) is True
        assert lock.fence > 0
        previous = lock


def test_release_without_the_lock_returns_false(client: KazooClient) -> None:
    lock = client.Lock("/locks/a")
    assert lock.release() is False
    lock.acquire()
    assert lock.release() is True
    assert lock.release() is False


def test_contenders_without_an_identifier_are_blank(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    first, second = client.Lock("/locks/a"), other.Lock("/locks/a", 7)
    assert first.contenders() == []
    first.acquire()
    waiting = background(second.acquire)
    lines_up(first, "", "7")
    first.release()
    waiting.result(10)


def test_a_lock_that_outlives_its_session_is_refused(client: KazooClient) -> None:
    with pytest.raises(UnimplementedError, match="ephemeral"):
        client.Lock("/locks/a").acquire(ephemeral=False)
    with pytest.raises(UnimplementedError, match="extra_lock_patterns"):
        client.Lock("/locks/a", extra_lock_patterns=["lock-"])


def test_a_lock_is_lost_with_the_session(
    client: KazooClient, other: KazooClient, expire: Callable[[KazooClient], None]
) -> None:
    lock = client.Lock("/locks/a", "first")
    lock.acquire()
    fence = lock.fence
    expire(client)
    assert lock.lost and not lock.is_acquired
    assert other.Lock("/locks/a").acquire(timeout=10)
    with pytest.raises(SessionExpiredError):
        lock.release()
    with pytest.raises(BadArgumentsError):
        _ = lock.fence
    other.stop()
    assert lock.acquire(timeout=10) and lock.fence > fence, "it can be acquired again in the new session"


@pytest.mark.long
def test_a_block_whose_lock_was_lost_ends_with_an_error(
    client: KazooClient, expire: Callable[[KazooClient], None]
) -> None:
    with pytest.raises(SessionExpiredError), client.Lock("/locks/a"):
        expire(client)
    with pytest.raises(ZeroDivisionError), client.Lock("/locks/a"):
        expire(client)
        raise ZeroDivisionError  # the error of the block is the one that the caller gets


@pytest.mark.long
def test_a_waiter_stays_in_line_over_a_new_session(
    client: KazooClient, other: KazooClient, background: Background, expire: Callable[[KazooClient], None]
) -> None:
    first, second = client.Lock("/locks/a", "first"), other.Lock("/locks/a", "second")
    first.acquire()
    waiting = background(second.acquire)
    lines_up(first, "first", "second")
    expire(other)
    lines_up(first, "first", "second")
    first.release()
    assert waiting.result(10) is True


def test_stop_gives_back_all_locks_and_ends_all_waits(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    first, second, third = client.Lock("/locks/a"), other.Lock("/locks/a"), other.Lock("/locks/b")
    first.acquire()
    third.acquire()
    waiting = background(second.acquire)
    lines_up(first, "", "")
    other.stop()
    with pytest.raises(ConnectionClosedError):
        waiting.result(10)
    assert first.contenders() == [""]
    assert client.Lock("/locks/b").acquire(blocking=False)
    with pytest.raises(ConnectionClosedError):
        second.acquire()


@pytest.mark.long
def test_a_transaction_of_the_holder_fails_after_the_loss(
    client: KazooClient, expire: Callable[[KazooClient], None], connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    lock = client.Lock("/locks/a")
    lock.acquire()
    with connect(autocommit=False) as mine:
        lock.assert_held(mine)
    expire(client)
    with connect(autocommit=False) as mine, pytest.raises(SessionExpiredError):
        lock.assert_held(mine)


def test_release_during_an_outage_frees_the_lock_after_it(
    client: KazooClient, other: KazooClient, outage: Callable[[], AbstractContextManager[None]]
) -> None:
    lock = client.Lock("/locks/a")
    lock.acquire()
    with outage():
        assert lock.release() is True
    assert other.Lock("/locks/a").acquire(timeout=20)


def test_acquire_waits_during_an_outage(
    client: KazooClient, outage: Callable[[], AbstractContextManager[None]], background: Background
) -> None:
    lock = client.Lock("/locks/a")
    with outage():
        waiting = background(lock.acquire)
        wait_until(lambda: client.state == "SUSPENDED")
        assert not waiting.done()
    assert waiting.result(20) is True


def test_long_and_relative_paths_are_refused(client: KazooClient) -> None:
    with pytest.raises(BadArgumentsError, match="200"):
        client.Lock("/" + "x" * 201)
    with pytest.raises(BadArgumentsError):
        client.Lock("/")
    with pytest.raises(ValueError, match=r"\.\."):
        client.Lock("/a/../b")
    with client.Lock("a//b/"):
        assert client.Lock("/a/b").acquire(blocking=False) is False


# ---- read locks and write locks


def test_several_readers_have_the_lock_at_a_time(client: KazooClient, other: KazooClient) -> None:
    first, second = client.ReadLock("/locks/rw", "r1"), other.ReadLock("/locks/rw", "r2")
    assert first.acquire() and second.acquire(blocking=False)
    assert first.contenders() == ["r1", "r2"]


def test_a_writer_waits_for_readers(client: KazooClient, other: KazooClient, background: Background) -> None:
    reader, writer = client.ReadLock("/locks/rw", "reader"), other.WriteLock("/locks/rw", "writer")
    reader.acquire()
    assert writer.acquire(blocking=False) is False
    waiting = background(writer.acquire)
    lines_up(reader, "reader", "writer")
    reader.release()
    assert waiting.result(10) is True


def test_a_writer_waits_for_writers(client: KazooClient, other: KazooClient) -> None:
    client.WriteLock("/locks/rw").acquire()
    assert other.WriteLock("/locks/rw").acquire(blocking=False) is False


def test_a_reader_waits_for_writers(client: KazooClient, other: KazooClient) -> None:
    writer, reader = client.WriteLock("/locks/rw"), other.ReadLock("/locks/rw")
    writer.acquire()
    with pytest.raises(LockTimeout):
        reader.acquire(timeout=0.05)
    writer.release()
    assert reader.acquire(timeout=10)


def test_readers_and_writers_of_other_paths_do_not_meet(client: KazooClient, other: KazooClient) -> None:
    client.WriteLock("/locks/rw").acquire()
    assert other.ReadLock("/locks/rw2").acquire(blocking=False)


@pytest.mark.parametrize("kind", ["ReadLock", "WriteLock"])
def test_they_are_not_re_entrant_either(client: KazooClient, kind: str) -> None:
    lock = getattr(client, kind)("/locks/rw")
    lock.acquire()
    assert lock.acquire(timeout=0.05) is False
