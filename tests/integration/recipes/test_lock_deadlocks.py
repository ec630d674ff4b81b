"""No two calls wait for each other: whoever waits for the row of a line has locked no other row."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.recipes.calls import acquire, function_without, granted, session, value
from tests.support.recipes.lines import line
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
END_OF_SWEEP = "RETURN cardinality(found);"


def wait_for_waiting(db: Db, count: int) -> None:
    """Wait until so many calls wait for a lock."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND (database IS NULL OR database = (" \
              " SELECT oid FROM pg_database WHERE datname = current_database()))"  # fmt: skip
    wait_until(lambda: value(db, waiting) == count, 20, f"{count} calls that wait")


def end_lease(db: Db, token: UUID) -> None:
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token = %s", [token])


@pytest.fixture
def held_up_sweeps(db: Db) -> Callable[[], None]:
    """Let each call that opens a session sweep others, and then wait until the function is called that this returns."""
    function_without(db, "session_open", "IF id % 50 = 0 OR NOT", "IF true OR NOT")
    function_without(db, "sweep_sessions", END_OF_SWEEP, f"PERFORM pg_advisory_xact_lock_shared(7); {END_OF_SWEEP}")
    db.execute("SELECT pg_advisory_lock(7)")
    return lambda: db.execute("SELECT pg_advisory_unlock(7)") and None


def test_two_calls_that_sweep_do_not_wait_for_each_other(
    db: Db, connect: Connect, held_up_sweeps: Callable[[], None]
) -> None:
    """Each asks for the lock whose ended holder the other has swept. A call with a session of its own sweeps others."""
    holder_of_a, holder_of_b = uuid4(), uuid4()
    granted(db, "a", holder_of_a)
    granted(db, "b", holder_of_b)
    with ThreadPoolExecutor(2) as pool:
        end_lease(db, holder_of_a)
        first = pool.submit(acquire, connect(), "b", wait="30 s")
        wait_for_waiting(db, 1)
        end_lease(db, holder_of_b)
        second = pool.submit(acquire, connect(), "a", wait="30 s")
        wait_for_waiting(db, 2)
        held_up_sweeps()
        assert first.result(30).fence and second.result(30).fence


def test_breaking_a_lock_and_sweeping_its_holder_do_not_wait_for_each_other(
    db: Db, connect: Connect, held_up_sweeps: Callable[[], None]
) -> None:
    holder = uuid4()
    granted(db, "a", holder)
    end_lease(db, holder)
    with connect(autocommit=False) as breaks, ThreadPoolExecutor(2) as pool:
        breaks.execute("SELECT FROM pgsched.locks WHERE name = 'a' FOR UPDATE")
        asks = pool.submit(acquire, connect(), "a", wait="30 s")
        wait_for_waiting(db, 1)
        broken = pool.submit(value, breaks, "SELECT pgsched.lock_break('a')")
        held_up_sweeps()
        assert broken.result(30) == 1
        breaks.commit()
        assert asks.result(30).fence


def test_breaking_a_lock_and_ending_its_session_do_not_wait_for_each_other(db: Db, connect: Connect) -> None:
    """Who ends the session comes last: it leaves out the line that is locked. What has ended cannot be broken."""
    ends = connect()
    for first in ("break", "end"):
        mine, waiter = session(db), uuid4()
        granted(db, first, session=mine)
        granted(db, f"another of {first}", session=mine)
        acquire(db, first, waiter, wait="1 hour")
        with connect(autocommit=False) as breaks, ThreadPoolExecutor(1) as pool:
            if first == "break":
                assert value(breaks, "SELECT pgsched.lock_break(%s)", first) == 1
                ends.execute("SET lock_timeout = '300 ms'")
                assert value(ends, "SELECT pgsched.session_end(%s)", mine) == 1
                ends.execute("RESET lock_timeout")
                breaks.commit()
                assert value(ends, "SELECT pgsched.session_end(%s)", mine) == 0
            else:
                assert value(breaks, "SELECT pgsched.session_end(%s)", mine) == 0
                broken = pool.submit(value, ends, "SELECT pgsched.lock_break(%s)", first)
                wait_for_waiting(db, 1)
                breaks.commit()
                assert broken.result(10) == 1, "the next holder's"
        assert line(db, first) == ([True] if first == "break" else [])
        assert line(db, f"another of {first}") == []


@pytest.mark.long
def test_calls_about_the_same_lines_at_the_same_time_meet_no_deadlock(db: Db, connect: Connect) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    names = [f"l{n}" for n in range(3)]

    def work(conn: Db, dice: random.Random) -> int:
        conn.execute("SET lock_timeout = '20 s'")
        for _ in range(40):
            mine = session(conn)
            for name in dice.sample(names, 2):
                acquire(conn, name, session=mine, wait="1 hour")
            acquire(conn, dice.choice(names), wait="1 hour")
            value(conn, "SELECT pgsched.lock_break(%s)", dice.choice(names))
            if dice.random() < 0.5:
                end_lease(conn, mine)
            value(conn, "SELECT pgsched.session_end(%s)", mine)
        return 40

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(work, connect(), random.Random(f"{seed} {n}")) for n in range(4)]
        assert [one.result(120) for one in done] == [40] * 4
