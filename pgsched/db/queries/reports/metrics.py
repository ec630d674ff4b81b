"""What metrics ask the database: read-only, bounded in rows and in time."""

from __future__ import annotations

import time
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, value

MOST_RUNS = 1_000_000  # counted of each phase


def queues(conn: Connection[Any], most: int = MOST_RUNS) -> list[Row]:
    """(queue, state, n, oldest_s) of the unfinished runs."""
    return fetch(conn, "metrics_queues", {"n": most})


def tables(conn: Connection[Any]) -> list[Row]:
    """(name, live, dead) of pgsched's tables."""
    return fetch(conn, "metrics_tables")


def jobs(conn: Connection[Any]) -> Row:
    """How many jobs are planned, paused and broken, and for how many seconds a slot has been overdue."""
    return fetch(conn, "jobs_counted")[0]


def clock_offset(conn: Connection[Any]) -> float:
    """What added to `time.monotonic()` gives the database's time in seconds since 1970, within half of the way there
    and back."""
    sent_at = time.monotonic()
    seconds: float = value(conn, "clock")
    return seconds - (sent_at + time.monotonic()) / 2
