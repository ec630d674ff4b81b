"""The line of a lock: first come, first served; readers and writers; semaphores; and no herd."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched import App
from pgsched.db.queries.recipes import locks
from tests.support.recipes.calls import acquire, granted, release, session, value
from tests.support.recipes.lines import (
    another,
    asserted,
    fill_line,
    in_threads,
    line,
    wait_for_nothing,
    wait_in_line,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
WAITS = {"wait": "1 hour"}


def test_contenders_are_served_in_the_order_in_which_they_came(app: App, dsn: str, db: Db) -> None:
    with another(dsn, 3) as others, ThreadPoolExecutor(12) as pool:
        order, first = list[int](), app.lock("a").acquire()

        def take(n: int) -> None:
            with others[n % 3].lock("a", timeout=30):
                order.append(n)

        done = []
        for n in range(12):
            done.append(pool.submit(take, n))
            wait_in_line(db, n + 2)
        assert [one.fence is None for one in first.line()] == [False] + 12 * [True]
        first.release()
        for one in done:
            one.result(30)
        assert order == list(range(12))


def test_the_list_says_who_holds_it_and_who_waits_and_since_when(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,), app.lock("a", note="at work") as mine:
        with in_threads(other.lock("a", note="later"), timeout=30) as (waits,):
            wait_in_line(db, 2)
            holder, waiter = mine.line()
            assert (holder.fence, holder.note, holder.mode) == (mine.fence, "at work", "exclusive")
            assert (waiter.fence, waiter.note, waiter.granted_at) == (None, "later", None)
            assert holder.since <= waiter.since and holder.lease_until > waiter.since
            assert holder.owner == waiter.owner == value(db, "SELECT session_user::text")
            assert len(mine.line(limit=1)) == 1
            mine.release()
            waits.result(10).release()
        mine.acquire()


def test_readers_share_and_a_writer_is_alone(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,):
        readers = [app.read_lock("a").acquire(), other.read_lock("a").acquire()]
        writer = other.write_lock("a")
        assert not writer.try_acquire()
        with in_threads(writer, timeout=30) as (waits,):
            wait_in_line(db, 3)
            # a reader that comes after a waiting writer waits too: writers do not starve
            assert not app.read_lock("a").try_acquire()
            with in_threads(app.read_lock("a"), other.read_lock("a"), timeout=30) as late:
                wait_in_line(db, 5)
                readers[0].release()
                assert line(db) == [True, False, False, False]
                readers[1].release()
                waits.result(10)
                assert line(db) == [True, False, False]
                writer.release()
                both = [one.result(10) for one in late]
                assert line(db) == [True, True]
                assert all(asserted(db, one.fence) for one in both) and both[0].fence != both[1].fence
                for one in both:
                    one.release()
    wait_for_nothing(db)


def test_when_a_waiting_writer_leaves_the_readers_behind_it_go_on(db: Db) -> None:
    writer, reader = uuid4(), uuid4()
    granted(db, mode="shared")
    acquire(db, "a", writer, **WAITS)
    assert acquire(db, "a", reader, mode="shared", **WAITS).fence is None
    release(db, writer)
    assert line(db) == [True, True]


def test_a_semaphore_is_held_up_to_its_limit(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,):
        held = [one.semaphore("a", 3).acquire() for one in (app, other, app)]
        assert not other.semaphore("a", 3).try_acquire()
        assert len({one.fence for one in held}) == 3 and all(asserted(db, one.fence) for one in held)
        with in_threads(*(app.semaphore("a", 3) for _ in range(3)), timeout=30) as waits:
            wait_in_line(db, 6)
            held[1].release()
            wait_until(lambda: sum(one.done() for one in waits) == 1, 10)
            assert sum(line(db)) == 3
            held[0].release()
            held[2].release()
            for one in waits:
                one.result(10).release()
    wait_for_nothing(db)


def test_a_semaphore_serves_in_order_too(db: Db) -> None:
    tokens = [uuid4() for _ in range(6)]
    for token in tokens:
        acquire(db, "a", token, capacity=2, **WAITS)
    assert line(db) == [True, True, False, False, False, False]
    release(db, tokens[0])
    assert line(db) == [True, True, False, False, False]
    release(db, tokens[4])
    release(db, tokens[1])
    assert [acquire(db, "a", token, capacity=2, **WAITS).fence is not None for token in (tokens[2], tokens[3])] == [
        True,
        True,
    ]


def test_a_contender_that_died_does_not_stop_the_line(db: Db) -> None:
    holder, dead, alive = uuid4(), uuid4(), uuid4()
    granted(db, "a", holder)
    acquire(db, "a", dead, ttl="1 s", **WAITS)
    acquire(db, "a", alive, **WAITS)
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token = %s", [dead])
    assert acquire(db, "a", alive, **WAITS).look_at is not None, "it is the first of those who live"
    release(db, holder)
    assert acquire(db, "a", alive).fence is not None
    assert line(db) == [True]


def test_the_first_in_line_looks_when_the_lease_ends_without_any_leader(app: App, db: Db) -> None:
    """And all that one process waits for is found by one statement."""
    for n in range(5):
        granted(db, f"l{n}", ttl="2 s")
    with in_threads(*(app.lock(f"l{n}") for n in range(5)), timeout=30) as waits:
        for one in waits:
            one.result(10)
    app.close()
    wait_for_nothing(db)


@pytest.mark.long
def test_a_renewal_that_commits_late_keeps_what_the_session_has(db: Db, connect: Connect) -> None:
    """It was sent in time, and its row is locked: others wait until it is known whether it is committed."""
    mine = session(db, "1 min")
    fence, waiter = granted(db, session=mine), uuid4()
    acquire(db, "a", waiter, **WAITS)
    soon = "UPDATE pgsched.sessions SET lease_until = clock_timestamp() + interval '1 s' WHERE token = %s"
    over = "SELECT lease_until < clock_timestamp() FROM pgsched.sessions WHERE token = %s"
    for commits in (True, False):
        db.execute(soon, [mine])
        with connect(autocommit=False) as late:
            late.execute("SELECT pgsched.session_renew(%s)", [mine])
            wait_until(lambda: value(db, over, mine), 10, "the lease to end that others can see")
            found = acquire(db, "a", waiter, **WAITS)
            assert found.fence is None and found.look_at is not None
            assert not asserted(db, fence), "as long as it is not known, nobody writes"
            value(db, "SELECT pgsched.sweep_sessions(100)")
            (late.commit if commits else late.rollback)()
        assert asserted(db, fence) is commits
        assert (acquire(db, "a", waiter, **WAITS).fence is None) is commits


@pytest.mark.long
def test_a_release_wakes_one_and_makes_few_statements_however_many_wait(
    dsn: str, app: App, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty processes' worth of sessions, with five waiters each: a release is no herd."""
    looks, read = [], locks.read_leases
    monkeypatch.setattr(locks, "read_leases", lambda *given: looks.append(1) or read(*given))
    with another(dsn, 20) as others:
        first = app.lock("a").acquire()
        contenders = [one.lock("a", ttl=3600) for one in others for _ in range(5)]
        with ThreadPoolExecutor(100) as pool:
            waits = [pool.submit(lock.acquire, 60) for lock in contenders]
            wait_in_line(db, 101, timeout=60)
            listens = (
                "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgsched hints%'"
                " AND state = 'idle' AND query LIKE 'LISTEN%' AND datname = current_database()"
            )
            wait_until(lambda: value(db, listens) == 21, 20)
            before = len(looks)
            for n in range(10):
                holder = first if n == 0 else next(one.result() for one in waits if one.done() and one.result().is_held)
                holder.release()
                wait_until(lambda n=n: sum(one.done() for one in waits) == n + 1, 20)  # type: ignore[misc]
            assert len(looks) - before <= 10 + 20 + 5, "each of the twenty may just have begun to listen"
            app.close()
            for one in others:
                one.close()


def test_serving_a_long_line_reads_its_front_only(db: Db) -> None:
    """Whatever the statistics say: with and without them, with one session and with many."""
    holder, mine = uuid4(), session(db)
    granted(db, "a", holder)
    acquire(db, "a", uuid4(), session=mine, **WAITS)
    fill_line(db, "a", 15_000, mine)
    read = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'lock_places'"
    for statistics in ("none", "new"):
        if statistics == "new":
            db.execute("ANALYZE pgsched.lock_places; ANALYZE pgsched.sessions")
        with db.transaction(force_rollback=True):
            before = value(db, read)
            release(db, holder)
            assert value(db, read) - before < 100


def test_threads_of_one_process_contend_as_processes_do(app: App, db: Db) -> None:
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with app.lock("a", timeout=60):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == 1
    assert value(db, "SELECT last_value FROM pgsched.fences") == 40


def test_a_line_has_room_for_twenty_thousand(db: Db) -> None:
    granted(db)
    fill_line(db, "a", 20_000, session(db))
    with pytest.raises(psycopg.errors.CheckViolation, match="20000 hold"):
        for _ in range(100):
            acquire(db, **WAITS)
    with pytest.raises(psycopg.errors.CheckViolation, match="20000 hold"):
        acquire(db, **WAITS)


@pytest.mark.long
def test_a_role_has_room_for_a_hundred_thousand_places(db: Db) -> None:
    granted(db, "old")
    for n in range(5):
        granted(db, f"l{n}")
        fill_line(db, f"l{n}", 20_000, session(db))
    with pytest.raises(psycopg.errors.CheckViolation, match="holds or waits for 100000 locks"):
        acquire(db, "new", **WAITS)
    with pytest.raises(psycopg.errors.CheckViolation, match="holds or waits for 100000 locks"):
        for _ in range(100):
            acquire(db, "old", **WAITS)


@pytest.mark.long
def test_a_line_that_is_full_of_those_who_gave_up_has_room(db: Db) -> None:
    granted(db)
    fill_line(db, "a", 20_000, session(db))
    db.execute("UPDATE pgsched.lock_places SET give_up_at = clock_timestamp() WHERE place > 1000 AND place % 10 = 0")
    for _ in range(200):
        assert acquire(db, **WAITS).place
