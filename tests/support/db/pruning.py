"""Prune in tests: count ended runs into the rollups, then delete those that are too old."""

from __future__ import annotations

from typing import Any

import psycopg

from pgsched.db.queries.leader import rollups
from pgsched.leader.pruner import Pruner


def keep(db: psycopg.Connection[Any], **outcomes: str) -> None:
    """Set how long ended runs are kept, by their state."""
    db.execute("UPDATE pgsched.retention SET keep = %s::jsonb", [psycopg.types.json.Jsonb(outcomes)])


def count(db: psycopg.Connection[Any], n: int = 1_000_000) -> int:
    """Count the runs that have ended by now, as the leader does; no other session may be writing runs."""
    with db.transaction():
        return rollups.count(db, rollups.find_uncounted(db).now, n)


def prune(db: psycopg.Connection[Any], keep_s: float, n: int = 100, pruner: Pruner | None = None) -> int:
    """Delete a batch of runs that ended more than `keep_s` seconds ago; return how many were deleted."""
    keep(db, any=f"{keep_s} seconds")
    count(db)
    pruner = pruner or Pruner()
    with db.transaction():
        gone = pruner.prune_batch(db, n)
        pruner.tidy(db, n)
    return gone


def ended(db: psycopg.Connection, age: str, state: str = "succeeded", queue: str = "default", n: int = 1) -> None:
    """Add n runs without a job that ended `age` ago."""
    db.execute(
        "INSERT INTO pgsched.runs (task, state, queue, started_at, finished_at) SELECT 't', %(s)s, %(q)s,"
        " clock_timestamp() - %(a)s::interval, clock_timestamp() - %(a)s::interval FROM generate_series(1, %(n)s)",
        {"s": state, "q": queue, "a": age, "n": n},
    )


def slots_of(db: psycopg.Connection, job: str, age: str, n: int, state: str = "succeeded") -> int:
    """Add n ended slots of a job, an hour apart, the newest `age` ago; return the job's id."""
    db.execute(
        "INSERT INTO pgsched.jobs (name, schedule, task) VALUES (%s, '@every 1h', 't') ON CONFLICT DO NOTHING", [job]
    )
    row = db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, origin, started_at, finished_at)"
        " SELECT j.id, s.at, 't', %(state)s, 'schedule', s.at, s.at FROM pgsched.jobs j, generate_series(1, %(n)s) i,"
        " LATERAL (SELECT date_trunc('hour', clock_timestamp()) - %(age)s::interval"
        "     - (i - 1) * interval '1 hour' AS at) s"
        " WHERE j.name = %(job)s RETURNING job_id",
        {"job": job, "age": age, "n": n, "state": state},
    ).fetchone()
    assert row is not None
    return int(row[0])


def left(db: psycopg.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT state || ' ' || queue, count(*) FROM pgsched.runs GROUP BY 1").fetchall())
