"""Kazoo's Queue, and what it has in common with LockingQueue: what its documentation says of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from pgsched import App, DatabaseUnreachable, LeaseLost
from pgsched.recipes import kazoo
from pgsched.recipes.items.item import Item
from pgsched.recipes.kazoo import KazooClient
from pgsched.recipes.kazoo.exceptions import (
    BadArgumentsError,
    ConnectionClosedError,
    ConnectionLoss,
    SessionExpiredError,
)
from tests.support.waiting import wait_until

Background = Callable[..., Future[Any]]
Outage = Callable[[], AbstractContextManager[None]]
Expire = Callable[[KazooClient], None]

BOTH = pytest.mark.parametrize("kind", ["Queue", "LockingQueue"])


def take(queue: Any) -> bytes | None:
    """Return the first entry, which is then removed."""
    if isinstance(queue, kazoo.Queue):
        return queue.get()
    value: bytes | None = queue.get(0)
    assert queue.consume() is (value is not None)
    return value


def take_all(queue: Any) -> list[bytes]:
    found = []
    while (value := take(queue)) is not None:
        found.append(value)
    return found


# ---- both queues


@BOTH
def test_entries_are_got_in_the_order_in_which_they_were_put(
    client: KazooClient, other: KazooClient, kind: str
) -> None:
    for value in (b"one", b"two", b"three"):
        assert getattr(client, kind)("/queue").put(value) is None
    assert take_all(getattr(other, kind)("/queue")) == [b"one", b"two", b"three"]


@BOTH
def test_a_lower_priority_is_got_first(client: KazooClient, kind: str) -> None:
    queue = getattr(client, kind)("/queue")
    for value, priority in ((b"four", 101), (b"one", 0), (b"two", 0), (b"three", 10), (b"last", 999)):
        queue.put(value, priority)
    queue.put(b"default")
    queue.put(b"one more", priority=100)
    assert take_all(queue) == [b"one", b"two", b"three", b"default", b"one more", b"four", b"last"]


@BOTH
def test_an_empty_queue_has_nothing(client: KazooClient, kind: str) -> None:
    queue = getattr(client, kind)("/queue")
    assert len(queue) == 0 and not queue
    assert take(queue) is None
    assert len(queue) == 0


@BOTH
def test_the_length_is_the_number_of_entries(client: KazooClient, kind: str) -> None:
    queue = getattr(client, kind)("/queue")
    for number in range(3):
        queue.put(b"%d" % number)
        assert len(queue) == number + 1
    take(queue)
    assert len(queue) == 2 and queue


@BOTH
@pytest.mark.parametrize(
    ("value", "priority", "kind_of_error"),
    [
        ({}, 100, TypeError), ("text", 100, TypeError), (None, 100, TypeError), (b"one", b"100", TypeError),
        (b"one", 10.0, TypeError), (b"one", -100, ValueError), (b"one", 1000, ValueError),
    ],
)  # fmt: skip
def test_a_value_is_bytes_and_a_priority_a_number_up_to_999(
    client: KazooClient, kind: str, value: Any, priority: Any, kind_of_error: type[Exception]
) -> None:
    queue = getattr(client, kind)("/queue")
    with pytest.raises(kind_of_error):
        queue.put(value, priority)
    if kind == "LockingQueue":
        with pytest.raises(kind_of_error):
            queue.put_all([b"fine", value], priority)
    assert len(queue) == 0


@BOTH
def test_all_bytes_come_back_as_they_were(client: KazooClient, kind: str) -> None:
    queue = getattr(client, kind)("/queue")
    values = [b"", b"7", b"007", b"\x00\xff", "grüße".encode(), b'{"b64": 1}', b"null", b"x" * 700_000]
    for value in values:
        queue.put(value)
    assert take_all(queue) == values
    with pytest.raises(BadArgumentsError, match="1048576"):
        queue.put(b"\xff" * 1_048_576)


@BOTH
def test_a_queue_is_the_item_queue_of_its_name(
    client: KazooClient, kind: str, app: App, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    """Other programs put JSON into it, whatever that is."""
    queue, items = getattr(client, kind)("/app//queue/"), app.item_queue("app/queue")
    items.put_many([{"order": 7}, None, "text"])
    connect().execute("SELECT pgsched.item_put('app/queue', ('[1' || repeat('0', 5000) || ']')::jsonb)")
    assert take_all(queue) == [b'{"order":7}', b"null", b"text", b"[1" + b"0" * 5000 + b"]"]
    queue.put(b"text", priority=5)
    with items.get(0) as item:
        assert (item.value, item.priority) == ("text", 5)


@BOTH
def test_each_entry_is_got_once(client: KazooClient, other: KazooClient, background: Background, kind: str) -> None:
    values = [b"%d" % number for number in range(20)]
    for value in values:
        getattr(client, kind)("/queue").put(value)
    takers = [background(take_all, getattr(one, kind)("/queue")) for one in (client, other, client, other)]
    assert sorted(value for taker in takers for value in taker.result(30)) == sorted(values)


@BOTH
def test_put_says_when_the_database_does_not_answer(client: KazooClient, outage: Outage, kind: str) -> None:
    queue = getattr(client, kind)("/queue")
    with outage(), pytest.raises(ConnectionLoss):
        queue.put(b"one")
    queue.put(b"two")
    assert take(queue) == b"two"


@BOTH
def test_get_waits_during_an_outage(client: KazooClient, outage: Outage, background: Background, kind: str) -> None:
    queue = getattr(client, kind)("/queue")
    queue.put(b"one")
    with outage():
        waiting = background(queue.get)
        wait_until(lambda: client.state == "SUSPENDED")
        assert not waiting.done()
    assert waiting.result(20) == b"one"


@BOTH
def test_a_queue_needs_a_client_that_is_started(client: KazooClient, kind: str) -> None:
    queue = getattr(client, kind)("/queue")
    client.stop()
    for call in (lambda: queue.put(b"one"), queue.get, queue.__len__):
        with pytest.raises(ConnectionClosedError):
            call()
    client.start()
    queue.put(b"one")
    assert take(queue) == b"one"


def test_the_classes_take_the_client_first(client: KazooClient) -> None:
    kazoo.Queue(client, "/queue").put(b"one")
    assert kazoo.LockingQueue(client, "/queue").get(0) == b"one"
    with pytest.raises(BadArgumentsError):
        client.Queue("/")


# ---- Queue


@pytest.mark.long
def test_an_entry_is_removed_when_it_is_got(client: KazooClient, other: KazooClient, expire: Expire) -> None:
    queue = client.Queue("/queue")
    queue.put(b"one")
    assert queue.get() == b"one"
    expire(client)
    assert other.Queue("/queue").get() is None and len(queue) == 0


def test_an_entry_whose_session_ends_before_it_is_removed_is_got_again(
    client: KazooClient, expire: Expire, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.Queue("/queue").put(b"one")
    remove = Item.consume
    removed: list[Item] = []

    def late(item: Item) -> None:
        if not removed:
            removed.append(item)
            expire(client)
        remove(item)

    monkeypatch.setattr(Item, "consume", late)
    assert client.Queue("/queue").get() == b"one"
    assert len(client.Queue("/queue")) == 0


def test_get_says_so_when_nobody_knows_whether_the_entry_was_removed(
    client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.Queue("/queue").put(b"one")
    answers = iter([DatabaseUnreachable("away"), LeaseLost("ended")])

    def consume(_: Item) -> None:
        raise next(answers)

    monkeypatch.setattr(Item, "consume", consume)
    with pytest.raises(SessionExpiredError, match="may have been removed"):
        client.Queue("/queue").get()
