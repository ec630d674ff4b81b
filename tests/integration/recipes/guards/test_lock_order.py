"""Calls never wait for each other in a circle of locked rows. Without the guard, one of two ends in a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.support.recipes.calls import acquire, function_without, granted, session, value
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def blocked(db: Db, count: int) -> None:
    """Wait until so many connections wait for a lock."""
    wait_until(lambda: value(db, BLOCKED) == count, 10, f"{count} connections that wait")


def over(db: Db, *tokens: object) -> None:
    """Let the time of these sessions be over."""
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token = ANY (%s)", [list(tokens)])


def sweep_with_the_next_session(db: Db) -> None:
    """Let the session that is opened next look for those that have ended."""
    db.execute(
        "SELECT setval('pgsched.sessions_id_seq', (SELECT last_value FROM pgsched.sessions_id_seq) / 50 * 50 + 49)"
    )


def errors_of(*calls: Future[Any]) -> list[str]:
    """Return the errors with which calls ended."""
    return [type(error).__name__ for call in calls if (error := call.exception(30)) is not None]


@pytest.fixture
def soon(db: Db) -> None:
    """Let the server look for deadlocks soon."""
    db.execute(f"ALTER DATABASE {db.info.dbname} SET deadlock_timeout = '200 ms'".encode())


@pytest.mark.parametrize("guarded", [True, False], ids=["with", "without"])
def test_a_session_that_has_something_is_not_locked_against_a_break(
    db: Db, connect: Connect, soon: None, guarded: bool
) -> None:
    """A break has locked the line, and notes the loss for the session. Whoever ends that session waits for the line."""
    if not guarded:
        function_without(db, "session_drop", "IF pgsched.session_has_nothing(session) THEN", "IF true THEN")
    holder = session(db)
    granted(db, "a", session=holder)
    with connect(autocommit=False) as pausing, connect() as breaking, connect(autocommit=False) as ending:
        pausing.execute("SELECT FROM pgsched.lock_places FOR UPDATE")
        with ThreadPoolExecutor(2) as pool:
            broken = pool.submit(value, breaking, "SELECT pgsched.lock_break('a')")
            blocked(db, 1)
            ending.execute("SELECT pgsched.session_end(%s)", [holder])
            taken = pool.submit(acquire, ending, "a", wait="1 hour")
            blocked(db, 2)
            pausing.rollback()
            assert errors_of(broken, taken) == ([] if guarded else ["DeadlockDetected"])


@pytest.mark.parametrize("guarded", [True, False], ids=["with", "without"])
def test_a_session_is_opened_when_the_line_is_locked(db: Db, connect: Connect, soon: None, guarded: bool) -> None:
    """Each call opens a session, and so ends another, which has a place in the line of the other call."""
    if not guarded:
        function_without(
            db, "lock_acquire", "-- the row of the lock: what is in line is read only when it is locked",
            "IF session IS NULL THEN PERFORM pgsched.session_open(token, ttl); END IF;",
        )  # fmt: skip
    first, second = session(db), session(db)
    granted(db, "x", session=first)
    granted(db, "y", session=second)
    db.execute("SELECT pgsched.kv_put('k', '1', session => %s)", [second])
    over(db, first, second)
    with connect(autocommit=False) as pausing, connect(autocommit=False) as keeping, connect() as one, connect() as two:
        keeping.execute("SELECT FROM pgsched.sessions WHERE token = %s FOR UPDATE", [first])
        pausing.execute("SELECT FROM pgsched.store FOR UPDATE")
        with ThreadPoolExecutor(2) as pool:
            sweep_with_the_next_session(db)
            x = pool.submit(acquire, one, "x", wait="1 hour")
            blocked(db, 1)  # it has ended the second session, and given the line of y on
            keeping.rollback()
            sweep_with_the_next_session(db)
            y = pool.submit(acquire, two, "y", wait="1 hour")
            blocked(db, 2)
            pausing.rollback()
            assert errors_of(x, y) == ([] if guarded else ["DeadlockDetected"])
