"""Figures of the whole database for metrics: read-only, bounded in rows and in time."""

from __future__ import annotations

import time
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, value

MOST_RUNS = 1_000_000  # of each phase are counted


def count_unfinished_runs(conn: Connection[Any], most: int = MOST_RUNS) -> list[Row]:
    """Count the unfinished runs: (queue, state, n, oldest_s).

    `most`: at most this many of each phase are read; `oldest_s`: age of the oldest in seconds.
    """
    return fetch(conn, "metrics_queues", {"n": most})


def tables(conn: Connection[Any]) -> list[Row]:
    """Return the counts of live and dead rows of pgsched's tables: (name, live, dead)."""
    return fetch(conn, "metrics_tables")


def count_jobs(conn: Connection[Any]) -> Row:
    """Count the planned, paused and broken jobs; return also for how many seconds a slot has been overdue."""
    return fetch(conn, "jobs_counted")[0]


def clock_offset(conn: Connection[Any]) -> float:
    """Return the seconds to add to `time.monotonic()` to get the database's time since 1970.

    Exact to half of the round trip.
    """
    sent_at = time.monotonic()
    seconds: float = value(conn, "clock")
    return seconds - (sent_at + time.monotonic()) / 2
