"""Slots of jobs and what became of them, and the order of jobs that wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.shared_calendars import add_times_of_calendars
from pgsched.db.rows import rows


def newest(conn: Connection[Any], job_ids: Iterable[int], n: int) -> list[Row]:
    """Return the newest `n` slots of each of these jobs, oldest first."""
    return rows(conn, "slots_of_jobs_newest", {"ids": plain(job_ids), "n": n})


def by_day(conn: Connection[Any], job_id: int, edges: Sequence[datetime], n: int) -> list[Row]:
    """Count a job's slots by what became of them, for each day between two `edges`; the newest `n` rows are read."""
    return rows(conn, "slots_of_job_by_day", {"job_id": job_id, "edges": list(edges), "n": n})


def between(conn: Connection[Any], job_id: int, from_at: datetime, until_at: datetime, n: int) -> list[Row]:
    """Return the newest `n` slots of a stretch of time that have a row, newest first."""
    return rows(conn, "slots_of_job", {"job_id": job_id, "from_at": from_at, "until_at": until_at, "n": n})


def next_of_jobs(conn: Connection[Any], n: int) -> list[Row]:
    """Return the `n` jobs whose next slots come first, each with the times of its calendar."""
    return add_times_of_calendars(conn, rows(conn, "slots_next", {"n": n}))


def jobs_in_order(conn: Connection[Any], job_id: int, after: Iterable[int], n: int) -> list[Row]:
    """Return the jobs that this one waits for (`side` before) and those that wait for it (`side` behind).

    `after`: the ids of the jobs that it waits for.
    """
    return rows(conn, "jobs_after", {"id": job_id, "after": plain(after), "n": n})
