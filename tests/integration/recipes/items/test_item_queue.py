"""Item queues: order, priorities, dead items, settings, values, and loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgsched import App, InputError, QueueFull
from pgsched.recipes.items.item import Item
from pgsched.recipes.items.item_queue import ItemQueue
from tests.support.logins import one
from tests.support.recipes.items import end_sessions, values
from tests.support.waiting import wait_until

Connect = Callable[..., psycopg.Connection]


@pytest.fixture
def queue(app: App) -> ItemQueue:
    return app.item_queue("orders")


@pytest.fixture
def other(dsn: str) -> Iterator[ItemQueue]:
    """The same queue for another process: it has a session of its own."""
    second = App("other", dsn=dsn)
    yield second.item_queue("orders")
    second.close()


# ---- order


def test_items_are_got_in_the_order_in_which_they_were_put(queue: ItemQueue) -> None:
    first = queue.put({"n": 1})
    more = queue.put_many([[2], "three", 4.5, None, True])
    assert [first, *more] == sorted([first, *more])
    assert values(queue, 6) == [{"n": 1}, [2], "three", 4.5, None, True]
    with pytest.raises(TimeoutError, match='no item in "orders"'):
        queue.get(0)


def test_a_lower_priority_number_comes_first(queue: ItemQueue) -> None:
    queue.put("default")
    queue.put("late", priority=999)
    queue.put_many(["first", "second"], priority=0)
    assert values(queue, 4) == ["first", "second", "default", "late"]


def test_an_item_with_a_delay_is_got_when_its_time_has_come(queue: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("soon", priority=0, delay=3600)
    queue.put("now")
    assert values(queue, 1) == ["now"]
    with pytest.raises(TimeoutError):
        queue.get(0)
    db.execute("UPDATE pgsched.items SET available_at = clock_timestamp() + interval '50 ms'")
    assert queue.get(10).value == "soon"


def test_several_items_are_got_at_once_in_their_order(queue: ItemQueue) -> None:
    queue.put_many([5, 6], priority=7)
    queue.put_many([1, 2, 3, 4], priority=3)
    got = queue.get_many(5, 0)
    assert [item.value for item in got] == [1, 2, 3, 4, 5]
    queue.consume_many(got)
    assert (queue.count(), len(queue)) == (1, 1)


def test_a_call_gets_eight_mib_at_most(queue: ItemQueue) -> None:
    queue.put_many([f"{n}" + "x" * 1_000_000 for n in range(10)])
    got = queue.get_many(10, 0)
    assert [item.value[0] for item in got] == [str(n) for n in range(8)]
    assert [item.value[0] for item in queue.get_many(10, 0)] == ["8", "9"]


# ---- dead items


def test_an_item_that_fails_too_often_becomes_a_dead_run(app: App, db: psycopg.Connection) -> None:
    queue = app.item_queue("orders", max_attempts=2)
    queue.put({"a": 1}, priority=3)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"), queue.get(0):
            raise ValueError("no")
    assert queue.count() == 0
    found = db.execute("SELECT id, kind, queue, task, state, phase, attempt, args ->> 'value', error FROM pgsched.runs")
    (run, *dead), = found.fetchall()  # fmt: skip
    assert dead == ["item", "orders", "orders", "dead", 4, 2, '{"a": 1}', "ValueError: no"]
    assert one(db, "SELECT outcome FROM pgsched.attempts WHERE run_id = %s", run) == "failed"
    assert one(db, "SELECT pgsched.retry(%s)", run) == "queued"
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 0
    item = queue.get(0)
    assert (item.value, item.priority, item.attempt) == ({"a": 1}, 3, 1)


def test_an_item_whose_holders_die_too_often_becomes_a_dead_run(
    dsn: str, queue: ItemQueue, db: psycopg.Connection
) -> None:
    queue.put("a")
    holder = App("holder", dsn=dsn)
    holder.item_queue("orders", max_attempts=1).get(0)
    end_sessions(db)
    with pytest.raises(TimeoutError):
        queue.get(0)
    assert one(db, "SELECT state FROM pgsched.runs") == "dead"
    holder.close()


def test_without_max_attempts_an_item_never_dies(queue: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("a")
    db.execute("UPDATE pgsched.items SET attempt = 1000000")
    with pytest.raises(ValueError, match="no"), queue.get(0):
        raise ValueError("no")
    assert queue.get(0).attempt == 1_000_002


# ---- settings of queues, and values


def test_a_full_queue_refuses_more(queue: ItemQueue, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth) VALUES ('orders', 3)")
    queue.put_many([1, 2])
    with pytest.raises(QueueFull, match="max_depth is 3"):
        queue.put_many([3, 4])
    queue.put(3, delay=3600)
    with pytest.raises(QueueFull):
        queue.put(4)
    queue.get(0)
    queue.put(4)


def test_a_paused_queue_hands_out_nothing(queue: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("a")
    for what, name in (("queue", "orders"), ("all", "")):
        db.execute("INSERT INTO pgsched.pauses (what, name) VALUES (%s, %s)", [what, name])
        with pytest.raises(TimeoutError):
            queue.get(0)
        db.execute("DELETE FROM pgsched.pauses")
    assert values(queue, 1) == ["a"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda queue: queue.put({1, 2}), "item: JSON cannot hold it"),
        (lambda queue: queue.put(float("nan")), "item: JSON cannot hold it"),
        (lambda queue: queue.put("x" * 1_048_577), "item: 1048589 bytes, at most 1048576"),
        (lambda queue: queue.put(1, priority=1000), "priority"),
        (lambda queue: queue.put(1, delay=-1), "delay"),
        (lambda queue: queue.put_many(range(10_001)), "items: more than 10000"),
        (lambda queue: queue.get_many(1001), "limit"),
        (lambda queue: queue.get(hold=0.5), "ttl"),
    ],
)
def test_wrong_values_are_refused(queue: ItemQueue, call: Callable[[ItemQueue], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(queue)
    assert queue.count() == 0


def test_values_nested_too_deep_are_refused(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="nested more than 200 deep"):
        db.execute("SELECT pgsched.item_put('orders', (repeat('[', 300) || repeat(']', 300))::jsonb)")


def test_a_value_that_python_cannot_read_is_not_lost(queue: ItemQueue, db: psycopg.Connection) -> None:
    db.execute("SELECT pgsched.item_put('orders', (repeat('9', 5000))::jsonb)")
    with pytest.raises(InputError, match="cannot read"), queue.get(0) as item:
        assert item.value
    assert queue.counts() == (1, 0, 0)


# ---- iteration, and asyncio


def test_a_loop_consumes_each_item_when_it_goes_on(app: App) -> None:
    queue = app.item_queue("orders", timeout=0)
    queue.put_many([1, 2, 3])
    seen = []
    for item in queue:
        seen.append((item.value, queue.count()))
    assert seen == [(1, 3), (2, 2), (3, 1)]
    assert queue.count() == 0


def test_a_loop_that_is_left_gives_its_item_back(app: App) -> None:
    queue = app.item_queue("orders", timeout=0)
    queue.put_many([1, 2, 3])
    for item in queue:
        if item.value == 2:
            break
    wait_until(lambda: queue.counts() == (2, 0, 0), what="the item in the queue")
    for item in queue:
        item.consume()
        break
    assert values(queue, 1) == [3]


def test_asyncio_programs_do_the_same(app: App, db: psycopg.Connection) -> None:
    async def scene() -> None:
        queue = app.item_queue("orders", timeout=0)
        await queue.put_async(1)
        await queue.put_many_async([2, 3, 4, 5, 6])
        async with await queue.get_async() as item:
            assert item.value == 1
        with pytest.raises(ValueError, match="no"):
            async with await queue.get_async():
                raise ValueError("no")
        first = await queue.get_async()
        assert (first.value, first.attempt) == (2, 2)
        await first.extend_async()
        await first.consume_async()
        await (await queue.get_async()).give_back_async()
        await queue.consume_many_async(await queue.get_many_async(2))
        assert await queue.counts_async() == (2, 0, 0)
        assert [item.value async for item in queue] == [5, 6]
        assert await queue.count_async() == 0
        with pytest.raises(TimeoutError):
            await queue.get_async(0)

    asyncio.run(scene())


def test_a_lost_item_is_open_until_somebody_looks(queue: ItemQueue) -> None:
    queue.put("a")
    item: Item = queue.get(0)
    assert repr(item) == f"<Item {item.id} of 'orders'>"
    assert item.is_open
    item.drop()
    wait_until(lambda: queue.counts() == (1, 0, 0), what="the item in the queue")
