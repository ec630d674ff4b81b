"""Kazoo's LockingQueue: what its documentation says of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from pgsched.recipes.kazoo import KazooClient
from pgsched.recipes.kazoo.exceptions import BadArgumentsError, ConnectionClosedError, RetryFailedError
from tests.support.waiting import wait_until

Background = Callable[..., Future[Any]]
Outage = Callable[[], AbstractContextManager[None]]
Expire = Callable[[KazooClient], None]
Connect = Callable[..., psycopg.Connection[Any]]


def test_an_entry_is_locked_until_it_is_consumed(client: KazooClient, other: KazooClient) -> None:
    first, second = client.LockingQueue("/queue"), other.LockingQueue("/queue")
    first.put_all([b"one", b"two"])
    assert first.get() == b"one" and first.holds_lock()
    assert second.get() == b"two" and second.holds_lock()
    assert second.consume() is True and not second.holds_lock()
    assert second.get(0) is None
    assert len(second) == 1, "the locked one counts"
    assert first.consume() is True
    assert len(second) == 0


def test_an_entry_that_was_not_consumed_is_returned_again(client: KazooClient) -> None:
    queue = client.LockingQueue("/queue")
    queue.put_all([b"one", b"two"])
    assert [queue.get(), queue.get(1), queue.get(0)] == [b"one"] * 3
    assert queue.processing_element is not None and queue.processing_element[1] == b"one"
    assert queue.consume() and queue.processing_element is None
    assert queue.get(0) == b"two"


def test_there_is_nothing_to_consume_or_to_release_without_an_entry(client: KazooClient) -> None:
    queue = client.LockingQueue("/queue")
    queue.put(b"one")
    assert (queue.consume(), queue.release(), queue.holds_lock()) == (False, False, False)
    queue.get()
    assert queue.consume()
    assert (queue.consume(), queue.release(), queue.holds_lock()) == (False, False, False)


def test_a_released_entry_is_got_again_at_its_place(client: KazooClient, other: KazooClient) -> None:
    first, second = client.LockingQueue("/queue"), other.LockingQueue("/queue")
    first.put_all([b"one", b"two"])
    assert first.get() == b"one"
    assert first.release() is True
    assert not first.holds_lock() and not first.release() and len(first) == 2
    assert second.get(0) == b"one"
    assert first.get(0) == b"two"


def test_all_entries_are_put_or_none(client: KazooClient) -> None:
    queue = client.LockingQueue("/queue")
    queue.put_all([])
    queue.put_all([b"two", b"three"])
    queue.put_all([b"one"], priority=7)
    with pytest.raises(TypeError):
        queue.put_all((b"four",))  # type: ignore[arg-type]
    with pytest.raises(BadArgumentsError, match="10000"):
        queue.put_all([b"x"] * 10_001)
    for value in (b"one", b"two", b"three"):
        assert queue.get(0) == value and queue.consume()
    assert queue.get(0) is None


def test_get_waits_until_there_is_an_entry(client: KazooClient, other: KazooClient, background: Background) -> None:
    queue = client.LockingQueue("/queue")
    waiting = background(queue.get)
    assert other.LockingQueue("/queue").get(0.05) is None
    assert not waiting.done()
    other.LockingQueue("/queue").put(b"one")
    assert waiting.result(10) == b"one"
    assert queue.holds_lock()


def test_get_waits_for_an_entry_that_another_one_releases(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    holder = client.LockingQueue("/queue")
    holder.put(b"one")
    holder.get()
    waiting = background(other.LockingQueue("/queue").get)
    holder.release()
    assert waiting.result(10) == b"one"


@pytest.mark.long
def test_an_entry_is_handed_out_again_when_the_session_of_its_consumer_has_ended(
    client: KazooClient, other: KazooClient, background: Background, expire: Expire
) -> None:
    queue, next_one = client.LockingQueue("/queue"), other.LockingQueue("/queue")
    queue.put(b"one")
    queue.get()
    waiting = background(next_one.get)
    expire(client)
    assert waiting.result(20) == b"one"
    queue.put(b"two")
    assert queue.processing_element is None and not queue.holds_lock()
    assert not queue.consume() and not queue.release()
    assert queue.get(0) == b"two"
    assert next_one.consume() and queue.consume()


def test_who_has_lost_an_entry_hears_of_it(client: KazooClient, connect: Connect) -> None:
    """Also where only the database knows that the session has ended."""
    queue = client.LockingQueue("/queue")
    for act in (queue.consume, queue.release, queue.holds_lock):
        queue.put(b"one")
        assert queue.get(10) == b"one"
        connect().execute("UPDATE pgsched.items SET session = NULL, token = NULL")
        assert act() is False
        assert queue.get(10) == b"one"
        assert queue.consume()


def test_stop_releases_entries_at_once_and_ends_all_waits(
    client: KazooClient, other: KazooClient, background: Background, connect: Connect
) -> None:
    other.LockingQueue("/queue").put(b"one")
    queue = client.LockingQueue("/queue")
    queue.get()
    waiting = background(client.LockingQueue("/queue").get)
    waits = "SELECT count(*) FROM pgsched.item_consumers WHERE waiting_since IS NOT NULL"
    wait_until(lambda: connect().execute(waits).fetchone() == (1,), what="the call that waits")
    client.stop()
    with pytest.raises(ConnectionClosedError):
        waiting.result(10)
    assert other.LockingQueue("/queue").get(0) == b"one"
    with pytest.raises(ConnectionClosedError):
        queue.consume()


def test_an_entry_is_kept_over_an_outage(client: KazooClient, outage: Outage, background: Background) -> None:
    queue = client.LockingQueue("/queue")
    queue.put(b"one")
    queue.get()
    with outage():
        consuming = background(queue.consume)
        wait_until(lambda: client.state == "SUSPENDED")
        assert not consuming.done()
    assert consuming.result(20) is True
    assert len(queue) == 0


@pytest.mark.long
def test_an_entry_that_is_released_during_an_outage_is_free_after_it(
    client: KazooClient, other: KazooClient, outage: Outage
) -> None:
    queue = client.LockingQueue("/queue")
    queue.put(b"one")
    queue.get()
    with outage():
        assert queue.release() is True
        assert queue.processing_element is None
    assert other.LockingQueue("/queue").get(20) == b"one"


def test_a_wait_with_a_limit_ends_during_an_outage(client: KazooClient, outage: Outage) -> None:
    with outage(), pytest.raises(RetryFailedError):
        client.LockingQueue("/queue").get(0.2)


def test_each_object_has_an_entry_of_its_own(client: KazooClient, background: Background) -> None:
    client.LockingQueue("/queue").put(b"one")
    results = [background(client.LockingQueue("/queue").get, 0.1) for _ in range(3)]
    found = [one.result(10) for one in results]
    assert (found.count(b"one"), found.count(None)) == (1, 2)


def test_threads_that_share_an_object_share_its_entry(client: KazooClient, background: Background) -> None:
    queue = client.LockingQueue("/queue")
    waits = [background(queue.get), background(queue.get)]
    client.LockingQueue("/queue").put_all([b"one", b"two"])
    assert [one.result(10) for one in waits] == [b"one"] * 2
    assert client.LockingQueue("/queue").get(0) == b"two"
