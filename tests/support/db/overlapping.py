"""Jobs whose slots overlap, and the rows that the tick makes for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from pgsched.config import LeaderSettings
from pgsched.db.queries.leader import ticks
from pgsched.leader.election import Leader
from pgsched.leader.ticker import tick
from tests.support.db.setting import Aside, add_jobs, put_back
from tests.support.waiting import wait_until


def bound_run(db: psycopg.Connection) -> int:
    """Add a queued run that must start within a minute and was never started; return its id."""
    run_id = job_with_a_run(db, "queued", overlap="skip", start_deadline="1 hour")
    db.execute(
        "UPDATE pgsched.runs SET expires_at = clock_timestamp() + interval '1 minute', started_at = NULL, attempt = 0"
    )
    return run_id


def time_passes(db: psycopg.Connection) -> None:
    """Let the start deadline of every run pass."""
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp() WHERE expires_at IS NOT NULL")


def job_with_a_run(db: psycopg.Connection, state: str, **columns: Any) -> int:
    """Add a job whose old slot has an unfinished run in this state; return the run's id. No other slot is due."""
    add_jobs(db, 1, 0, **columns)
    row = db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, state, task, token, lease_until, attempt, started_at,"
        " available_at) SELECT id, '2020-01-01Z', %(state)s, 't', CASE WHEN %(state)s = 'running' THEN"
        " gen_random_uuid() END, now() + interval '1 hour', 1, now(),"
        " CASE WHEN %(state)s = 'scheduled' THEN now() + interval '1 hour' ELSE now() END"
        " FROM pgsched.jobs RETURNING id",
        {"state": state},
    ).fetchone()
    assert row is not None
    return int(row[0])


def ticked(db: psycopg.Connection, slots: int = 1) -> list[tuple[str, str | None]]:
    """Make this many slots due, and tick; return the states and reasons of their rows."""
    put_back(db, slots)
    with db.transaction():
        tick(db, 100)
    return newer(db)


def newer(db: psycopg.Connection) -> list[tuple[str, str | None]]:
    return db.execute(
        "SELECT state, reason FROM pgsched.runs WHERE scheduled_at > '2021-01-01Z' ORDER BY scheduled_at"
    ).fetchall()


def admitted(db: psycopg.Connection) -> int:
    with db.transaction():
        return ticks.admit(db, 100)


def finish(db: psycopg.Connection, state: str = "succeeded") -> None:
    """End all runs that are queued or running."""
    db.execute(
        "UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp() WHERE state IN ('queued', 'running')",
        [state],
    )


@contextmanager
def leader(dsn: str, **settings: Any) -> Iterator[Leader]:
    candidate = Leader(dsn, LeaderSettings(**settings), "test")
    thread = Aside(candidate.run)
    wait_until(lambda: candidate.term, what="a leader")
    try:
        yield candidate
    finally:
        candidate.stop()
        thread.result()


def states(db: psycopg.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT state FROM pgsched.runs ORDER BY scheduled_at").fetchall()]
