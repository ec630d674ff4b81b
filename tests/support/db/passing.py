"""Let time pass at once: every instant of jobs, runs and passed-over slots is moved into the past.

Invariant: only instants are moved, and no trigger sees it. The product itself decides what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pgsched.leader import passed_over
from pgsched.leader.duties.next_slots import NextSlots
from pgsched.leader.ticker import tick

# No test may begin within this time before or after a full hour: a test takes up to BEFORE_S, and a job's default
# `misfire_after` of 60 s is less than AFTER_S.
BEFORE_S, AFTER_S = 10, 61
JOB = ("anchor_at", "decided_until", "created_at", "paused_at", "next_run_at", "run_at", "starts_at", "ends_at")
RUN = ("scheduled_at", "available_at", "covers_from", "covers_until", "expires_at", "held_until", "interval_start",
       "nominal_at")  # fmt: skip
NOTED = ("anchor_at", "after_at", "until_at")


def off_the_hour(now_s: float) -> float:
    """Return how long to wait until no full hour is near: a slot that is due just now would be on time, not late."""
    past_s = now_s % 3600
    if past_s < AFTER_S:
        return AFTER_S - past_s
    return 3600 - past_s + AFTER_S if past_s > 3600 - BEFORE_S else 0.0


def pass_time(db: psycopg.Connection, seconds: float) -> None:
    """Let time pass while no leader and no worker is at work."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        for table, columns in (("jobs", JOB), ("runs", RUN), ("passed_over", NOTED)):
            moved = ", ".join(f"{column} = {column} - make_interval(secs => %(s)s)" for column in columns)
            db.execute(f"UPDATE pgsched.{table} SET {moved}", {"s": seconds})


def set_past_triggers(db: psycopg.Connection, **columns: Any) -> None:
    """Write columns of every job without its triggers, which would refuse or change the values."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        names = ", ".join(f"{name} = %({name})s" for name in columns)
        db.execute(f"UPDATE pgsched.jobs SET {names}", columns)


def lead(db: psycopg.Connection, batch: int = 100) -> int:
    """Tick and record passed-over slots, in the order of a leader's round; return how many rows the tick made."""
    with db.transaction():
        made = tick(db, batch).slots
        passed_over.record_stretches(db)
    return made


def keep_next_slots(db: psycopg.Connection) -> None:
    """Let a leader look at all jobs (at most 100), and keep the next slots of those that want them."""

    @contextmanager
    def leading() -> Iterator[psycopg.Connection]:
        with db.transaction():
            yield db

    NextSlots().look(db, leading)


def add(db: psycopg.Connection, **columns: Any) -> dict[str, Any]:
    """Add a job named `a`; return its row."""
    given = {"name": "a", "task": "t"} | columns
    names, places = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    db.execute(f"INSERT INTO pgsched.jobs ({names}) VALUES ({places})", given)
    return job(db)


def job(db: psycopg.Connection) -> dict[str, Any]:
    """Return the row of the only job, with the time `now`; a `decided_until` of -infinity is returned as None."""
    text = "SELECT *, nullif(decided_until, '-infinity') AS decided_until, clock_timestamp() AS now FROM pgsched.jobs"
    with db.cursor(row_factory=dict_row) as cursor:
        columns = [c for c in columns_of(db) if c != "decided_until"]
        row = cursor.execute(text.replace("*", ", ".join(columns))).fetchone()
    assert row is not None
    return row


def columns_of(db: psycopg.Connection) -> list[str]:
    text = "SELECT attname FROM pg_attribute WHERE attrelid = 'pgsched.jobs'::regclass AND attnum > 0"
    return [row[0] for row in db.execute(text + " AND NOT attisdropped ORDER BY attnum").fetchall()]


def runs(db: psycopg.Connection) -> list[dict[str, Any]]:
    """Return all runs, ordered by slot."""
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM pgsched.runs ORDER BY scheduled_at").fetchall()


def states(db: psycopg.Connection) -> list[str]:
    return [run["state"] for run in runs(db)]


def now(db: psycopg.Connection) -> datetime:
    row = db.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    return row[0]


def finish(db: psycopg.Connection, state: str = "succeeded") -> None:
    """End all queued runs."""
    db.execute("UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp(), started_at = clock_timestamp()"
               " WHERE state = 'queued'", [state])  # fmt: skip
