"""The SQL functions of locks, as programs in other languages call them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.recipes.calls import acquire, granted, refused, release, session, value
from tests.support.recipes.lines import asserted, end_leases, fences, line
from tests.support.sessions import BLOCKED
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
Connect = Callable[..., Db]


def test_a_lock_is_taken_asserted_and_given_back(db: Db) -> None:
    token = uuid4()
    first = acquire(db, "a", token)
    assert first.fence is not None and first.place == 1 and first.look_at is None
    assert asserted(db, first.fence)
    other = acquire(db)
    assert other == (None, None, None, None), "not in line, and without a session"
    assert value(db, "SELECT count(*) FROM pgsched.sessions") == 1
    assert release(db, token) is True
    assert release(db, token) is False
    assert value(db, "SELECT count(*) FROM pgsched.sessions") == 0, "its own session has gone with it"
    assert granted(db) > first.fence


def test_the_same_token_gets_the_same_answer_and_renews_its_own_session(db: Db) -> None:
    holder, waiter = uuid4(), uuid4()
    fence = granted(db, "a", holder, ttl="1 min")
    first = acquire(db, "a", waiter, ttl="1 min", wait="1 hour")
    again = acquire(db, "a", waiter, ttl="1 min", wait="1 hour")
    assert (first.fence, first.place) == (again.fence, again.place) == (None, 1)
    assert again.lease_until > first.lease_until
    assert first.look_at is not None, "it is the first in line"
    assert acquire(db, "a", uuid4(), wait="1 hour").look_at is None
    assert granted(db, "a", holder) == fence
    assert line(db) == [True, False, False]
    assert release(db, holder)
    assert acquire(db, "a", waiter).fence == fences(db)[0] > fence


def test_a_lock_that_is_free_is_had_without_a_wait_whatever_was_in_its_line(db: Db) -> None:
    """Not waiting is no reason to leave the line before it was served."""
    granted(db)
    end_leases(db)
    assert acquire(db, wait="0 s").fence is not None
    end_leases(db)
    assert acquire(db, wait="1 microsecond").fence is not None
    first, second, third = (acquire(db, "s", capacity=2) for _ in range(3))
    assert first.fence and second.fence and third.fence is None
    assert acquire(db, "r", mode="shared").fence and acquire(db, "r", mode="shared").fence


def test_who_gave_up_leaves_the_line(db: Db) -> None:
    holder, quitter, waiter = uuid4(), uuid4(), uuid4()
    granted(db, "a", holder)
    assert acquire(db, "a", quitter, wait="1 ms").place == 1
    assert acquire(db, "a", waiter, wait="1 hour").place is not None
    assert value(db, "SELECT count(*) FROM pgsched.lock_line('a')") == 2
    release(db, holder)
    assert acquire(db, "a", waiter).fence is not None
    assert line(db) == [True]


def test_a_session_of_ones_own_holds_many_locks_and_all_end_with_it(db: Db) -> None:
    mine = session(db)
    held = [granted(db, f"l{n}", session=mine) for n in range(20)]
    granted(db, "other")
    waiter = uuid4()
    acquire(db, "l3", waiter, wait="1 hour")
    assert value(db, "SELECT pgsched.session_end(%s)", mine) == 0
    assert not any(asserted(db, fence, f"l{n}") for n, fence in enumerate(held))
    assert acquire(db, "l3", waiter).fence is not None, "the next one has it at once"
    assert line(db, "other") == [True]
    assert value(db, "SELECT pgsched.session_end(%s)", mine) is None
    assert refused(db, "SELECT pgsched.lock_acquire('a', gen_random_uuid(), session => %s)", mine) == "PS410"


def test_a_session_ends_in_steps_of_a_thousand_locks(db: Db) -> None:
    mine = session(db)
    db.execute(
        "SELECT pgsched.lock_acquire('l' || n, gen_random_uuid(), session => %s) FROM generate_series(1, 1500) n",
        [mine],
    )
    assert value(db, "SELECT pgsched.session_end(%s)", mine) == 500
    assert value(db, "SELECT pgsched.session_end(%s)", mine) == 0
    assert value(db, "SELECT count(*) FROM pgsched.sessions") == 0


def test_the_end_of_a_session_waits_for_no_line_that_somebody_has_locked(db: Db, connect: Connect) -> None:
    """Who keeps one line locked does not keep a process from giving back all its other locks."""
    mine = session(db)
    for name in ("a", "b", "c"):
        granted(db, name, session=mine)
    waiter = uuid4()
    acquire(db, "b", waiter, wait="1 hour")
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.locks WHERE name = 'b' FOR UPDATE")
        db.execute("SET lock_timeout = '2 s'")
        assert value(db, "SELECT pgsched.session_end(%s)", mine) == 1
        assert line(db, "a") == line(db, "c") == []
    assert acquire(db, "b", waiter).fence is not None, "whoever asks for it next serves the line"
    value(db, "SELECT pgsched.sweep_sessions(100)")
    assert value(db, "SELECT count(*) FROM pgsched.sessions") == 1


def test_a_place_that_was_asked_for_with_a_session_of_its_own_takes_nothing_else_with_it(db: Db) -> None:
    """Its session may have got other places since: it stays."""
    first, second = uuid4(), uuid4()
    granted(db, "a", first)
    fence = granted(db, "b", second, session=first)
    release(db, first)
    assert asserted(db, fence, "b")
    assert acquire(db, "b", first, wait="0 s").fence is None
    assert asserted(db, fence, "b")


def test_whoever_waits_is_told_and_nobody_else(db: Db, connect: Connect) -> None:
    ears = {}
    holder = uuid4()
    granted(db, "a", holder)
    for n in range(3):
        mine, token = session(db), uuid4()
        acquire(db, "a", token, session=mine, wait="1 hour")
        ears[n] = (connect(), token)
        ears[n][0].execute(
            f"LISTEN pgsched_session_{value(db, 'SELECT id FROM pgsched.sessions WHERE token = %s', mine)}".encode()
        )
    release(db, holder)
    conn, token = ears[0]
    assert [one.payload for one in conn.notifies(timeout=5, stop_after=1)] == [str(token)[:18]]
    for conn, _ in (ears[1], ears[2]):
        assert list(conn.notifies(timeout=0.2)) == []


def test_two_calls_with_one_token_at_the_same_time_make_one_place(db: Db, connect: Connect) -> None:
    for n in range(5):
        token, conns = uuid4(), [connect() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda conn, token=token, n=n: acquire(conn, f"l{n}", token, wait="1 hour"), conns))  # type: ignore[misc]
        assert len({one.fence for one in answers}) == 1
        assert line(db, f"l{n}") == [True]


def test_a_token_stands_for_one_lock_mode_and_session(db: Db) -> None:
    token = uuid4()
    granted(db, "a", token)
    ask = "SELECT pgsched.lock_acquire({}, %s{})"
    assert refused(db, ask.format("'b'", ""), token) == "23514"
    assert refused(db, ask.format("'a'", ", mode => 'shared'"), token) == "23514"
    assert refused(db, ask.format("'a'", ", session => %s"), token, session(db)) == "23514"


def test_wrong_arguments_are_refused_with_the_field_s_name(db: Db) -> None:
    wrong = {
        "name": ["''", "NULL", "repeat('x', 201)", "E'a\\nb'", "' a'"],
        "token": ["NULL"],
        "ttl": ["'0.5 s'", "'2 days'", "NULL"],
        "wait": ["'-1 s'", "'2 years'"],
        "mode": ["'both'", "NULL"],
        "capacity": ["0", "10001"],
        "note": ["repeat('x', 65537)"],
    }
    for field, values in wrong.items():
        for text in values:
            given = {"name": "'a'", "token": "gen_random_uuid()"} | {field: text}
            call = ", ".join(f"{key} => {one}" for key, one in given.items())
            with pytest.raises(psycopg.errors.CheckViolation) as caught:
                db.execute(f"SELECT pgsched.lock_acquire({call})".encode())
            assert caught.value.diag.column_name == field, text
            assert caught.value.diag.schema_name == "pgsched"


def test_a_semaphore_s_limit_changes_when_nobody_has_it(db: Db) -> None:
    token = uuid4()
    granted(db, "a", token, capacity=2)
    assert refused(db, "SELECT pgsched.lock_acquire('a', gen_random_uuid(), capacity => 3)") == "23514"
    assert refused(db, "SELECT pgsched.lock_acquire('a', gen_random_uuid())") == "23514"
    end_leases(db)
    assert granted(db, "a", capacity=3), "the holder's time is over"
    end_leases(db)
    assert granted(db, "a")


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_with_an_older_snapshot_fails_instead_of_giving_a_lock_twice(
    db: Db, connect: Connect, level: str
) -> None:
    holder = uuid4()
    granted(db, "a", holder)
    release(db, holder)
    with connect(autocommit=False) as old:
        old.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        old.execute("SELECT FROM pgsched.locks")
        fence = granted(db)
        with pytest.raises(psycopg.errors.SerializationFailure):
            acquire(old)
        old.rollback()
    with connect(autocommit=False) as old:
        old.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        old.execute("SELECT FROM pgsched.lock_places")
        end_leases(db)
        assert granted(db) > fence
        with pytest.raises(psycopg.errors.SerializationFailure):
            old.execute("SELECT pgsched.assert_lock('a', %s)", [fence])
    with connect(autocommit=False) as new:
        new.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        assert granted(new, "b") > fence


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_two_transactions_do_not_get_a_new_name_both(db: Db, connect: Connect, level: str) -> None:
    with connect(autocommit=False) as one, connect(autocommit=False) as other, ThreadPoolExecutor(1) as pool:
        for conn in (one, other):
            conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            conn.execute("SELECT FROM pgsched.locks")
        granted(one)
        second = pool.submit(acquire, other)
        wait_until(lambda: value(db, BLOCKED) == 1, 10)
        one.commit()
        if level == "READ COMMITTED":
            assert second.result(10).fence is None
        else:
            with pytest.raises(psycopg.errors.SerializationFailure):
                second.result(10)


def test_grants_and_renewals_are_committed_durably(db: Db, connect: Connect) -> None:
    """A grant that a crash of the server takes back is none, whatever the session has set."""
    shows = "SELECT current_setting('synchronous_commit')"
    mine, holder = session(db), uuid4()
    with connect(autocommit=False) as loose:
        for setting, then in (("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")):
            loose.execute(f"SET SESSION synchronous_commit = '{setting}'".encode())
            loose.commit()
            for call in ("lock_acquire('a', gen_random_uuid(), wait => '1 min')", f"session_renew('{mine}')",
                         "session_open(gen_random_uuid())", f"session_end('{session(db)}')"):  # fmt: skip
                loose.execute(f"SELECT pgsched.{call}".encode())
                assert value(loose, shows) == then, call
                loose.commit()
                assert value(loose, shows) == setting
                loose.commit()
        loose.execute("SET synchronous_commit = 'off'")
        loose.commit()
        # grants that the end of others brings about, in whatever function
        for n, call in enumerate(("sweep_sessions(100)", "lock_release('{name}', '{token}')", "lock_break('{name}')")):
            name, holder, waiter = f"g{n}", uuid4(), uuid4()
            granted(db, name, holder)
            acquire(db, name, waiter, session=mine, wait="1 hour")
            if n == 0:
                db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token = %s", [holder])
            loose.execute(f"SELECT pgsched.{call.format(name=name, token=holder)}".encode())
            assert value(loose, shows) == "on", call
            loose.commit()
            assert line(db, name) == [True]


def test_calls_keep_the_caller_s_lock_timeout(db: Db, connect: Connect) -> None:
    conn = connect(autocommit=False)
    for setting in ("0", "7s", "1min"):
        conn.execute(f"SET lock_timeout = '{setting}'".encode())
        conn.commit()
        for wait in ("0 s", "5 s", "365 days", None):
            acquire(conn, "a", wait=wait)
            assert value(conn, "SHOW lock_timeout") == setting
            conn.commit()


def test_odd_settings_and_hostile_search_paths_change_nothing(db: Db, connect: Connect) -> None:
    db.execute("""
        CREATE SCHEMA traps;
        CREATE FUNCTION traps.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz 'infinity' $$;
        CREATE FUNCTION traps.left(text, integer) RETURNS text LANGUAGE sql AS $$ SELECT 'trap' $$;
        CREATE TABLE traps.locks (name text)""")
    odd = connect(options="-c search_path=traps,pg_catalog -c standard_conforming_strings=off -c array_nulls=off"
                  " -c IntervalStyle=iso_8601 -c TimeZone=Asia/Kathmandu -c extra_float_digits=-10"
                  " -c transform_null_equals=on -c enable_indexscan=off -c lock_timeout=1234ms")  # fmt: skip
    odd.execute("CREATE TEMPORARY TABLE sessions (id int)")
    holder, waiter = uuid4(), uuid4()
    fence = granted(odd, "a", holder)
    assert asserted(odd, fence) and acquire(odd, "a", waiter, wait="1 hour").place == 1
    assert release(odd, holder) and acquire(odd, "a", waiter).fence == fences(db)[0]
    assert value(odd, "SELECT (pgsched.session_renew(%s)).lease_until > pg_catalog.clock_timestamp()", waiter) is True
    assert value(odd, "SHOW lock_timeout") == "1234ms"
