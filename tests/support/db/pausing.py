"""Hourly jobs that are paused and resumed, and the rows of their slots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from pgsched.db.queries.jobs import jobs
from tests.support.db.passing import now

HOUR = timedelta(hours=1)


def add(db: psycopg.Connection, name: str = "a", **columns: Any) -> dict[str, Any]:
    return jobs.add(db, {"name": name, "task": "t", "schedule": "@hourly"} | columns)


def runs(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute(
        "SELECT state, scheduled_at, covers_from, covers_until, covers_count, reason FROM pgsched.runs"
        " ORDER BY scheduled_at"
    ).fetchall()


def hours(db: psycopg.Connection, n: int) -> list[datetime]:
    """Return the last n full hours by the database's clock."""
    row = db.execute("SELECT date_trunc('hour', clock_timestamp())").fetchone()
    assert row is not None
    return [row[0].astimezone(UTC) - i * HOUR for i in reversed(range(n))]


def once(db: psycopg.Connection, in_hours: float, **columns: Any) -> None:
    """Add a job that runs once, `in_hours` hours from now."""
    add(db, schedule=None, run_at=(now(db) + in_hours * HOUR).isoformat(), **columns)
