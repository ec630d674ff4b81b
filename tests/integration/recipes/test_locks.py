"""Locks in a program: hold, wait, give back, lose; in both forms, with two Apps, and at the end of a process."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, LeaseLost, WaitCancelled
from tests.support.recipes.bound_keys import number
from tests.support.recipes.lines import (
    another,
    asserted,
    end_leases,
    fences,
    in_threads,
    line,
    running,
    said,
    wait_for_nothing,
    wait_in_line,
)
from tests.support.sessions import SESSIONS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14, pytest.mark.scram]
Db = psycopg.Connection[Any]


def test_one_process_holds_a_lock_at_a_time(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,):
        mine, its = app.lock("a"), other.lock("a")
        with mine as found:
            assert found is mine and mine.is_held and not mine.lost
            assert fences(db) == [mine.fence] and asserted(db, mine.fence)
            assert not its.try_acquire() and not its.is_held
            first = mine.fence
        assert not mine.is_held and not mine.lost
        assert its.try_acquire() and its.fence > first
        assert not asserted(db, first) and asserted(db, its.fence)
        its.release()
    assert line(db) == []


def test_the_asyncio_form_does_the_same(app: App, dsn: str, db: Db) -> None:
    async def main() -> None:
        with another(dsn) as (other,):
            mine, its = app.lock("a"), other.lock("a")
            async with mine as found:
                assert found is mine and mine.is_held and fences(db) == [mine.fence]
                assert not await its.try_acquire_async()
                assert [(one.fence, one.mode) for one in await its.line_async()] == [(mine.fence, "exclusive")]
                waits = asyncio.create_task(its.acquire_async(30))
                await asyncio.to_thread(wait_in_line, db, 2)
                assert not waits.done()
            assert await waits is its and its.is_held
            await its.release_async()
            with pytest.raises(InputError, match="not held"):
                await its.release_async()
            with pytest.raises(TimeoutError, match='"b" was not acquired in time'):
                async with app.lock("b"):
                    await other.lock("b").acquire_async(0.1)

    asyncio.run(main())
    wait_for_nothing(db)


def test_who_waits_has_it_when_it_is_given_back(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,):
        mine, its = app.lock("a").acquire(), other.lock("a")
        with in_threads(its) as (waits,):
            wait_in_line(db, 2)
            assert not waits.done()
            mine.release()
            assert waits.result(10) is its
        its.release()


def test_the_time_limit_of_a_wait(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,), app.lock("a"):
        for lock, wait in ((other.lock("a", timeout=0.2), ()), (other.lock("a"), (0.2,)), (other.lock("a"), (0,))):
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                lock.acquire(*wait)
            assert time.monotonic() - began < 10
        with pytest.raises(TimeoutError), other.lock("a", timeout="200ms"):
            pass
        wait_in_line(db, 1)


def test_one_object_has_one_grant_and_every_other_object_is_another_contender(app: App, db: Db) -> None:
    """A lock is not re-entrant by thread, process or App: only the same token gets the same answer."""
    mine = app.lock("a").acquire()
    with pytest.raises(InputError, match="make another one for a second grant"):
        mine.acquire()
    assert mine.is_held
    assert not app.lock("a").try_acquire()
    mine.release()
    with pytest.raises(InputError, match="not held by this object"):
        mine.release()
    with mine:  # an object can be used again
        assert mine.is_held
    with pytest.raises(InputError, match="acquire it first"):
        _ = mine.fence
    assert line(db) == []


def test_a_lost_lock_is_an_event_and_an_error_at_the_end_of_the_block(app: App, db: Db) -> None:
    mine = app.lock("a", ttl=1)
    with pytest.raises(LeaseLost, match="undo what you did under it"), mine:
        assert not mine.wait_lost(0)
        end_leases(db)
        assert mine.wait_lost(10)
        assert mine.lost and not mine.is_held
        assert not asserted(db, mine.fence)
    assert not mine.lost, "nothing is held any more"
    with mine:
        assert mine.is_held, "in a new session"


def test_a_lost_lock_is_an_event_for_asyncio(app: App, db: Db) -> None:
    async def main() -> None:
        mine = app.lock("a", ttl=1)
        with pytest.raises(LeaseLost):
            async with mine:
                assert not await mine.wait_lost_async(0.05)
                lost = asyncio.create_task(mine.wait_lost_async(30))
                await asyncio.to_thread(end_leases, db)
                assert await lost and mine.lost

    asyncio.run(main())


def test_the_error_of_the_block_goes_before_that_of_a_lost_lock(app: App, db: Db) -> None:
    with pytest.raises(ZeroDivisionError), app.lock("a", ttl=1) as mine:
        end_leases(db)
        assert mine.wait_lost(10)
        _ = 1 / 0


def test_who_waits_for_a_loss_is_woken_when_it_is_given_back(app: App) -> None:
    mine = app.lock("a").acquire()
    waits = threading.Thread(target=mine.wait_lost)
    waits.start()
    mine.release()
    waits.join(10)
    assert not waits.is_alive()


def test_a_lock_that_is_broken_is_lost_at_once(app: App, db: Db) -> None:
    """A notification says so; the heartbeat would find it in ten seconds."""
    with pytest.raises(LeaseLost, match="taken away"), app.lock("a") as mine, app.lock("b") as other:
        wait_until(lambda: number(db, f"{SESSIONS} AND query LIKE 'LISTEN %pgsched_session%'"), 10)
        assert db.execute("SELECT pgsched.lock_break('a')").fetchone() == (1,)
        began = time.monotonic()
        assert mine.wait_lost(15)
        assert time.monotonic() - began < 5
        assert mine.lost and other.is_held


def test_closing_the_app_gives_all_back_and_ends_the_waits(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,):
        held = [app.lock(name).acquire() for name in ("a", "b")]
        blocks = other.lock("c").acquire()
        with in_threads(app.lock("c"), timeout=None) as (waits,):
            wait_in_line(db, 2, "c")
            app.close()
            with pytest.raises(WaitCancelled, match="the App was closed"):
                waits.result(10)
        assert [lock.lost for lock in held] == [True, True]
        assert line(db) == line(db, "b") == [] and line(db, "c") == [True]
        with pytest.raises(LeaseLost, match="the App was closed"):
            held[0].release()
        blocks.release()
        with app.lock("a") as again:  # a later use opens a new session
            assert again.is_held


def test_closing_ends_the_waits_of_asyncio(app: App, dsn: str, db: Db) -> None:
    async def main() -> None:
        with another(dsn) as (other,):
            async with other.lock("a"):
                waits = asyncio.create_task(app.lock("a").acquire_async())
                await asyncio.to_thread(wait_in_line, db, 2)
                await app.close_async()
                with pytest.raises(WaitCancelled, match="the App was closed"):
                    await waits

    asyncio.run(main())
    wait_for_nothing(db)


@pytest.mark.long
def test_locks_of_a_program_that_ends_are_free_at_once(dsn: str, app: App, db: Db) -> None:
    for end in ("", "raise SystemExit(3)", "1 / 0", "signal.raise_signal(signal.SIGINT)"):
        with running(dsn, f"lock = app.lock('a', ttl=3600).acquire(); say(lock.fence)\n{end}\n") as process:
            assert int(said(process))
            process.wait(20)
            with app.lock("a", timeout=10):
                pass
            assert db.execute("SELECT count(*) FROM pgsched.sessions WHERE ttl = '1 hour'").fetchone() == (0,)


def test_locks_of_a_killed_program_are_free_after_its_ttl(dsn: str, app: App, db: Db) -> None:
    """Nobody leads here: the first in line looks when the lease ends."""
    with running(dsn, "lock = app.lock('a', ttl=2).acquire(); say(lock.fence); time.sleep(60)") as process:
        fence = int(said(process))
        process.send_signal(signal.SIGKILL)
        process.wait()
        (left,) = (
            db.execute(
                "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM pgsched.sessions"
            ).fetchone()
            or ()
        )
        began = time.monotonic()
        with app.lock("a", timeout=30) as mine:
            assert mine.fence > fence
        assert left - 0.5 < time.monotonic() - began < left + 5


@pytest.mark.long
def test_a_waiter_that_was_killed_leaves_the_line_after_its_ttl(dsn: str, app: App, db: Db) -> None:
    mine = app.lock("a").acquire()
    with running(dsn, "app.lock('a', ttl=1).acquire()") as process:
        wait_in_line(db, 2)
        process.kill()
        process.wait()
        with in_threads(app.lock("a")) as (waits,):
            wait_in_line(db, 3)
            wait_until(lambda: len(app.lock("a").line()) == 2, 10, "the dead one to be out of the list")
            mine.release()
            waits.result(10).release()
    wait_for_nothing(db)


def test_two_apps_of_a_process_are_two_contenders_with_sessions_of_their_own(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,):
        with app.lock("a"), app.lock("b"):
            its = other.lock("c").acquire()
            assert db.execute("SELECT count(*) FROM pgsched.sessions").fetchone() == (2,)
            assert not other.lock("a").try_acquire()
            other.close()
            assert its.lost and line(db, "c") == []
            assert line(db) == line(db, "b") == [True], "closing one App does nothing to the other"
            other.lock("c").acquire()
        assert line(db, "c") == [True]


@pytest.mark.parametrize("wrong", [
    {"ttl": 0.5}, {"ttl": "2 days"}, {"ttl": float("nan")}, {"timeout": "x"}, {"note": "x" * 65537}, {"note": "\0"},
    {"note": "\ud800"}, {"name": ""}, {"name": "x" * 201}, {"name": "a\nb"}, {"name": " a"}, {"name": 3},
])  # fmt: skip
def test_a_wrong_value_is_refused_where_it_stands(app: App, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        app.lock(**({"name": "a"} | wrong))


@pytest.mark.parametrize("limit", [None, 0, 10_001, 2.5, "3", True])
def test_a_wrong_limit_of_a_semaphore_is_refused(app: App, limit: Any) -> None:
    with pytest.raises(InputError, match="limit"):
        app.semaphore("a", limit)


def test_names_and_notes_of_full_length_come_back_unchanged(app: App) -> None:
    name, note = "ü" * 200, "ä" * 32768
    with app.lock(name, note=note) as mine:
        (found,) = mine.line()
        assert (found.note, found.fence, found.mode) == (note, mine.fence, "exclusive")
        assert ":" in found.session and found.granted_at is not None and found.since <= found.granted_at
