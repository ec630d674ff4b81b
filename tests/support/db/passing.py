"""Time that passes at once: in the database, everything a job knows of happens that much earlier.

The rule: only instants are moved, past all triggers; what is decided about them is the product's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pgsched.leader import skipped_slots
from pgsched.leader.ticker import tick

BEFORE_S, AFTER_S = 10, 61  # around a full hour: what a test takes, and the misfire_after of a job
JOB = ("anchor_at", "decided_until", "created_at", "paused_at", "next_run_at", "run_at", "starts_at", "ends_at")
RUN = ("scheduled_at", "available_at", "covers_from", "covers_until", "expires_at", "held_until")
NOTED = ("anchor_at", "after_at", "until_at")


def off_the_hour(now_s: float) -> float:
    """Seconds to wait until no full hour is near: a slot that is due just now is on time, and not to be caught up."""
    past_s = now_s % 3600
    if past_s < AFTER_S:
        return AFTER_S - past_s
    return 3600 - past_s + AFTER_S if past_s > 3600 - BEFORE_S else 0.0


def pass_time(db: psycopg.Connection, seconds: float) -> None:
    """Let time go by while nobody looks."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        for table, columns in (("jobs", JOB), ("runs", RUN), ("passed_over", NOTED)):
            moved = ", ".join(f"{column} = {column} - make_interval(secs => %(s)s)" for column in columns)
            db.execute(f"UPDATE pgsched.{table} SET {moved}", {"s": seconds})


def set_past_triggers(db: psycopg.Connection, **columns: Any) -> None:
    """Write columns of every job as no trigger would allow."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        names = ", ".join(f"{name} = %({name})s" for name in columns)
        db.execute(f"UPDATE pgsched.jobs SET {names}", columns)


def lead(db: psycopg.Connection, batch: int = 100) -> int:
    """What a leader's round decides, in the round's order; how many rows the tick made."""
    with db.transaction():
        made = tick(db, batch).slots
        skipped_slots.record_stretches(db)
    return made


def add(db: psycopg.Connection, **columns: Any) -> dict[str, Any]:
    """A job named `a`, as its row is then."""
    given = {"name": "a", "task": "t"} | columns
    names, places = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    db.execute(f"INSERT INTO pgsched.jobs ({names}) VALUES ({places})", given)
    return job(db)


def job(db: psycopg.Connection) -> dict[str, Any]:
    """The row of the only job (a mark of -infinity as None)."""
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
    """All runs by slot."""
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM pgsched.runs ORDER BY scheduled_at").fetchall()


def states(db: psycopg.Connection) -> list[str]:
    return [run["state"] for run in runs(db)]


def now(db: psycopg.Connection) -> datetime:
    row = db.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    return row[0]


def finish(db: psycopg.Connection, state: str = "succeeded") -> None:
    """End what is queued."""
    db.execute("UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp(), started_at = clock_timestamp()"
               " WHERE state = 'queued'", [state])  # fmt: skip
