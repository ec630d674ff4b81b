"""Fences: each grant has a higher number, and what `assert_held` guards is written by the holder or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa

from pgsched import App, InputError, LeaseLost
from tests.support.db.engines import url
from tests.support.recipes.calls import acquire, function_without, granted, refused, release, session, value
from tests.support.recipes.lines import (
    another,
    asserted,
    end_leases,
    fences,
    in_threads,
    line,
    wait_for_nothing,
    wait_in_line,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14, pytest.mark.packages]
Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
WAITS = {"wait": "1 hour"}


def test_fences_rise_over_all_grants_also_when_the_name_was_deleted(db: Db) -> None:
    last = 0
    for n in range(6):
        token = uuid4()
        fence = granted(db, "a", token)
        assert fence > last
        last = fence
        if n == 2:
            db.execute("DELETE FROM pgsched.locks")  # its places, too
        elif n == 3:
            end_leases(db)
        elif n == 4:
            assert value(db, "SELECT pgsched.restored()") == ""
            assert value(db, "SELECT last_value FROM pgsched.fences") > fence + 2**32
        else:
            release(db, token)
    assert value(db, "SELECT array_agg(DISTINCT action) FROM pgsched.audit WHERE what = 'database'") == ["restored"]


def test_after_a_restore_no_session_and_no_grant_of_before_counts(db: Db) -> None:
    """The backup may hold a grant that was given back, and given to another, since it was made."""
    mine = session(db)
    fence = granted(db, session=mine)
    value(db, "SELECT pgsched.restored()")
    assert not asserted(db, fence)
    assert value(db, "SELECT (pgsched.session_renew(%s)).lease_until", mine) is None
    assert granted(db) > fence + 2**32


def test_what_the_holder_writes_is_refused_when_it_is_not_the_holder_any_more(
    app: App, dsn: str, db: Db, connect: Connect
) -> None:
    db.execute("CREATE TABLE written (fence bigint)")
    mine = app.lock("a").acquire()
    fence = mine.fence
    with connect(autocommit=False) as own:
        mine.assert_held(own)
        own.execute("INSERT INTO written VALUES (%s)", [fence])
        own.commit()
        end_leases(db)
        with another(dsn) as (other,), other.lock("a") as its:
            own.execute("INSERT INTO written VALUES (%s)", [fence])
            with pytest.raises(LeaseLost, match=f'lock "a" is not held with fence {fence}'):
                mine.assert_held(own)
            own.rollback()
            its.assert_held(own)
            own.execute("INSERT INTO written VALUES (%s)", [its.fence])
            own.commit()
            assert value(db, "SELECT array_agg(fence) FROM written") == [fence, its.fence]
    with pytest.raises(LeaseLost):
        mine.release()


def test_nobody_gets_the_lock_before_the_transaction_ends_that_asserts_it(db: Db, connect: Connect) -> None:
    fence, waiter = granted(db, ttl="1 min"), uuid4()
    acquire(db, "a", waiter, **WAITS)
    with connect(autocommit=False) as holder:
        holder.execute("SELECT pgsched.assert_lock('a', %s)", [fence])
        db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token <> %s", [waiter])
        found = acquire(db, "a", waiter, **WAITS)
        assert found.fence is None and found.look_at is not None
        assert fences(db) == [fence]
        holder.execute("CREATE TABLE written ()")
        holder.commit()
    assert acquire(db, "a", waiter).fence == fences(db)[0] > fence


def test_without_skip_locked_the_granter_waits_for_whoever_asserts(db: Db, connect: Connect) -> None:
    fence, waiter = granted(db), uuid4()
    acquire(db, "a", waiter, **WAITS)
    db.execute("SET lock_timeout = '300 ms'")
    for guarded in (True, False):
        if not guarded:
            function_without(
                db, "lock_settle", "AND e.place = p.place FOR UPDATE SKIP LOCKED", "AND e.place = p.place FOR UPDATE"
            )
        with connect(autocommit=False) as holder:
            holder.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() + interval '1 min'")
            holder.commit()
            holder.execute("SELECT pgsched.assert_lock('a', %s)", [fence])
            db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token <> %s", [waiter])
            ask = "SELECT pgsched.lock_acquire('a', %s, wait => '1 hour')"
            assert refused(db, ask, waiter) == ("not refused" if guarded else "55P03")
            db.execute("UPDATE pgsched.sessions SET ended_at = NULL")


def test_without_the_row_lock_of_the_assertion_two_holders_write(db: Db, connect: Connect) -> None:
    """The first transaction has checked, and writes only later; meanwhile another gets the lock and writes."""
    for guarded in (True, False):
        if not guarded:
            function_without(db, "assert_lock", "FOR KEY SHARE OF p")
        fence, second = granted(db, f"l{guarded}"), uuid4()
        with connect(autocommit=False) as holder:
            holder.execute("SELECT pgsched.assert_lock(%s, %s)", [f"l{guarded}", fence])
            db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp()")
            found = acquire(db, f"l{guarded}", second).fence
            assert (found is not None and asserted(db, found, f"l{guarded}")) is not guarded


def test_without_the_comparison_of_the_lease_a_paused_holder_writes(db: Db) -> None:
    fence = granted(db)
    end_leases(db)
    assert not asserted(db, fence)
    function_without(db, "assert_lock", "AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()")
    assert asserted(db, fence)


def test_a_lock_can_be_given_back_in_the_transaction_that_asserts_it(
    app: App, dsn: str, db: Db, connect: Connect
) -> None:
    """The next one has it when the transaction has ended, soon: it looks for that."""
    with another(dsn) as (other,), connect(autocommit=False) as own:
        with app.lock("a") as mine:
            fence = mine.fence
            mine.assert_held(own)
            waiting = in_threads(other.lock("a", ttl=3600), timeout=60)
            (waits,) = waiting.__enter__()
            wait_in_line(db, 2)
        assert not mine.is_held and line(db) == [True, False]
        assert not asserted(db, fence) and mine.line()[0].fence is None
        assert not waits.done()
        own.commit()
        its = waits.result(5)
        assert its.fence > fence
        its.release()
        waiting.__exit__(None, None, None)


def test_closing_and_breaking_do_not_wait_for_a_transaction_that_asserts(app: App, db: Db, connect: Connect) -> None:
    first, second = app.lock("a").acquire(), app.lock("b").acquire()
    db.execute("SET lock_timeout = '2 s'")
    with connect(autocommit=False) as own:
        for one in (first, second):
            one.assert_held(own)
        assert value(db, "SELECT pgsched.lock_break('a')") == 1
        assert value(db, "SELECT pgsched.lock_break('a')") == 0
        app.close()
        assert acquire(db, "a").fence is None and acquire(db, "b").fence is None, "not before the transaction ends"
    assert granted(db, "a") and granted(db, "b")
    value(db, "SELECT pgsched.sweep_sessions(100)")
    assert value(db, "SELECT count(*) FROM pgsched.lock_places") == 2


def test_two_holders_of_one_lock_cannot_be_stored(db: Db) -> None:
    granted(db)
    second = (
        "INSERT INTO pgsched.lock_places (lock, place, session, token, mode, fence, granted_at)"
        " SELECT 'a', 99, id, gen_random_uuid(), 'exclusive', 99, now() FROM pgsched.sessions"
    )
    assert refused(db, second) == "23505"
    db.execute("DROP INDEX pgsched.lock_places_one_holder")
    assert refused(db, second) == "not refused"


def test_a_connection_that_commits_by_itself_is_refused(app: App, dsn: str, connect: Connect) -> None:
    with app.lock("a") as mine:
        with pytest.raises(InputError, match="commits by itself"):
            mine.assert_held(connect())
        with pytest.raises(InputError):
            mine.assert_held(None)  # type: ignore[arg-type]
        own = connect()
        with own.transaction():
            mine.assert_held(own)
        engine = sa.create_engine(url("psycopg", dsn), isolation_level="AUTOCOMMIT")
        with engine.connect() as commits, pytest.raises(InputError, match="commits by itself"):
            mine.assert_held(commits)
        engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_transactions_of_sqlalchemy_are_fenced(app: App, dsn: str, db: Db, driver: str) -> None:
    pytest.importorskip(driver)
    engine = sa.create_engine(url(driver, dsn))
    mine = app.lock("a").acquire()
    with engine.begin() as own:
        mine.assert_held(own)
        end_leases(db)
        assert acquire(db).fence is None
    assert granted(db)
    with engine.begin() as own, pytest.raises(LeaseLost):
        mine.assert_held(own)
    engine.dispose()


def test_transactions_of_asyncio_are_fenced(app: App, dsn: str, db: Db) -> None:
    async def main() -> None:
        mine = await app.lock("a").acquire_async()
        async with await psycopg.AsyncConnection.connect(dsn) as own:
            await mine.assert_held_async(own)
            end_leases(db)
            assert acquire(db).fence is None
            await own.commit()
            with pytest.raises(LeaseLost):
                await mine.assert_held_async(own)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as commits:
            with pytest.raises(InputError, match="commits by itself"):
                await mine.assert_held_async(commits)

    asyncio.run(main())
    app.close()
    wait_until(lambda: line(db) == [], 10)
    wait_for_nothing(db)
