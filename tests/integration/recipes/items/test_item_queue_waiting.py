"""Consumers that wait for items: they are told, one for each item, and leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched import App, WaitCancelled
from pgsched.recipes.items import item_waiting
from pgsched.recipes.items.item_queue import ItemQueue
from tests.support.logins import one
from tests.support.sessions import BLOCKED, SESSIONS
from tests.support.waiting import wait_until

WAITING = "SELECT count(*) FROM pgsched.item_consumers WHERE waiting_since IS NOT NULL"


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call that waits look only when it is told to."""
    monkeypatch.setattr(item_waiting, "PAUSES_S", ())
    monkeypatch.setattr(item_waiting, "LONGEST_PAUSE_S", 3600.0)
    monkeypatch.setattr(item_waiting, "LONGEST_POLL_S", 3600.0)


@pytest.fixture
def queue(app: App) -> ItemQueue:
    return app.item_queue("orders", hold=3600)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(10) as threads:
        yield threads


def waiting(queue: ItemQueue, db: psycopg.Connection, pool: ThreadPoolExecutor) -> Future[Any]:
    """Return a call that waits for an item."""
    call = pool.submit(lambda: queue.get(30))
    wait_until(lambda: one(db, WAITING), what="the call that waits")
    return call


def test_a_call_that_waits_is_told_of_an_item(
    queue: ItemQueue, db: psycopg.Connection, pool: ThreadPoolExecutor, no_polling: None
) -> None:
    call = waiting(queue, db, pool)
    listening = f"{SESSIONS} AND query LIKE 'LISTEN %%pgsched_session_%%'"
    wait_until(lambda: one(db, listening) or call.done(), what="the thread that listens")
    one(db, "SELECT pgsched.item_put('orders', '1')")
    assert call.result(20).value == 1
    assert one(db, WAITING) == 0


def test_calls_of_one_process_are_served_in_their_order(
    queue: ItemQueue, db: psycopg.Connection, pool: ThreadPoolExecutor
) -> None:
    calls = [waiting(queue, db, pool) for _ in range(5)]
    queue.put_many([1, 2, 3, 4, 5])
    assert sorted(call.result(20).value for call in calls) == [1, 2, 3, 4, 5]


@pytest.mark.long
def test_each_item_is_told_to_one_session_and_one_more(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    """A thousand consumers that wait do not make a thousand queries for an item."""
    heard, channels = connect(), []
    for _ in range(30):
        session = uuid4()
        found = one(db, "SELECT id FROM pgsched.session_open(%s, '1 hour')", session)
        channels.append(f"pgsched_session_{found}")
        heard.execute(f"LISTEN {channels[-1]}".encode())
        db.execute("SELECT FROM pgsched.item_get('orders', %s, %s, wait => true)", [uuid4(), session])
    assert one(db, WAITING) == 30
    db.execute("SELECT pgsched.item_put('orders', '1')")
    told = [note.channel for note in heard.notifies(timeout=1)]
    assert channels[0] in told and len(told) <= 2
    db.execute("SELECT pgsched.item_put_many('orders', '{2,3,4}')")
    told = [note.channel for note in heard.notifies(timeout=1)]
    assert set(channels[:3]) <= set(told) and len(told) <= 4


def test_who_gets_an_item_tells_the_next_of_those_that_are_left(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    heard, sessions = connect(), [uuid4(), uuid4()]
    channels = []
    for session in sessions:
        channels.append(f"pgsched_session_{one(db, 'SELECT id FROM pgsched.session_open(%s)', session)}")
        db.execute("SELECT FROM pgsched.item_get('orders', %s, %s, wait => true)", [uuid4(), session])
    db.execute("SELECT pgsched.item_put('orders', '1')")
    db.execute("SELECT pgsched.item_put('orders', '2')")  # the first session is told of both
    heard.execute(f"LISTEN {channels[1]}".encode())
    db.execute("SELECT FROM pgsched.item_get('orders', %s, %s)", [uuid4(), sessions[0]])
    assert [note.channel for note in heard.notifies(timeout=5, stop_after=1)] == channels[1:]


def test_a_session_that_has_ended_is_not_told(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    heard, sessions = connect(), [uuid4(), uuid4()]
    for session in sessions:
        found = one(db, "SELECT id FROM pgsched.session_open(%s)", session)
        heard.execute(f"LISTEN pgsched_session_{found}".encode())
        db.execute("SELECT FROM pgsched.item_get('orders', %s, %s, wait => true)", [uuid4(), session])
    db.execute("UPDATE pgsched.sessions SET ended_at = now() WHERE token = %s", [sessions[0]])
    db.execute("SELECT pgsched.item_put('orders', '1')")
    assert [note.channel for note in heard.notifies(timeout=5, stop_after=1)] == [f"pgsched_session_{found}"]


def test_a_call_that_waits_gets_what_a_dead_holder_had(
    dsn: str, queue: ItemQueue, db: psycopg.Connection, pool: ThreadPoolExecutor, no_polling: None
) -> None:
    """It looks when the lease ends: nobody else tells it."""
    queue.put("a")
    session = uuid4()
    db.execute("SELECT pgsched.session_open(%s, '1 s')", [session])
    db.execute("SELECT FROM pgsched.item_get('orders', %s, %s)", [uuid4(), session])
    item = pool.submit(lambda: queue.get(25)).result(15)  # it would look once more at the end
    assert (item.value, item.attempt) == ("a", 2)


def test_a_call_that_waits_gets_an_item_when_its_delay_is_over(
    queue: ItemQueue, db: psycopg.Connection, pool: ThreadPoolExecutor, no_polling: None
) -> None:
    queue.put("a", delay=0.3)
    assert pool.submit(lambda: queue.get(25)).result(15).value == "a"


def test_a_call_whose_time_is_over_waits_no_longer(queue: ItemQueue, db: psycopg.Connection) -> None:
    with pytest.raises(TimeoutError):
        queue.get(0.05)
    wait_until(lambda: one(db, WAITING) == 0, what="the end of the wait")


def test_a_cancelled_call_leaves_nothing_behind(app: App, queue: ItemQueue, db: psycopg.Connection) -> None:
    async def scene() -> None:
        call = asyncio.create_task(queue.get_async())
        await asyncio.to_thread(wait_until, lambda: one(db, WAITING), 10, "the call that waits")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(scene())
    wait_until(lambda: one(db, WAITING) == 0, what="the end of the wait")


def test_what_a_cancelled_call_got_goes_back(
    queue: ItemQueue, db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    """The statement goes on in its thread, and its item would be held by nobody."""
    blocker = connect(autocommit=False)
    queue.put("a")
    queue.get(0).give_back()  # its session has a row now
    blocker.execute("SELECT FROM pgsched.item_consumers FOR UPDATE")

    async def scene() -> None:
        call = asyncio.create_task(queue.get_async())
        await asyncio.to_thread(wait_until, lambda: one(db, BLOCKED), 10, "the statement")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(scene())
    blocker.rollback()
    wait_until(lambda: queue.counts() == (1, 0, 0), what="the item in the queue")


def test_who_waits_for_nothing_does_not_look_again_soon(db: psycopg.Connection) -> None:
    session = uuid4()
    db.execute("SELECT pgsched.session_open(%s)", [session])
    wait = "SELECT id, look_at FROM pgsched.item_get('orders', %s, %s, wait => true)"
    assert db.execute(wait, [uuid4(), session]).fetchall() == [(None, None)]


def test_who_leaves_passes_on_what_it_was_told(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    heard, sessions, channels = connect(), [uuid4(), uuid4()], []
    for session in sessions:
        channels.append(f"pgsched_session_{one(db, 'SELECT id FROM pgsched.session_open(%s)', session)}")
        db.execute("SELECT FROM pgsched.item_get('orders', %s, %s, wait => true)", [uuid4(), session])
    db.execute("SELECT pgsched.item_put('orders', '1')")  # told to the first session
    heard.execute(f"LISTEN {channels[1]}".encode())
    db.execute("SELECT pgsched.item_leave('orders', %s, %s)", [uuid4(), sessions[0]])
    assert [note.channel for note in heard.notifies(timeout=5, stop_after=1)] == channels[1:]


def test_a_call_that_waits_goes_on_when_its_session_was_lost(
    queue: ItemQueue, db: psycopg.Connection, pool: ThreadPoolExecutor
) -> None:
    call = waiting(queue, db, pool)
    db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp()")
    db.execute("SELECT pgsched.item_put('orders', '1')")
    assert call.result(20).value == 1


def test_what_a_closed_app_held_is_lost(dsn: str) -> None:
    app = App("leaver", dsn=dsn)
    app.item_queue("orders").put("a")
    held = app.item_queue("orders").get(0)
    app.close()
    assert held.lost


def test_calls_that_wait_end_with_the_app(dsn: str, db: psycopg.Connection, pool: ThreadPoolExecutor) -> None:
    """They do not wait on in a new session."""
    app = App("leaver", dsn=dsn)
    call = waiting(app.item_queue("orders"), db, pool)
    in_loop = pool.submit(lambda: asyncio.run(app.item_queue("other").get_async(30)))
    wait_until(lambda: one(db, WAITING) == 2, what="the second call")
    app.close()
    for one_call in (call, in_loop):
        with pytest.raises(WaitCancelled, match="the App was closed"):
            one_call.result(10)
    assert one(db, "SELECT count(*) FROM pgsched.sessions WHERE ended_at IS NULL") == 0
