"""The lists on the pages of `pgsched top`."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.shared_calendars import add_times_of_calendars
from pgsched.db.rows import rows


def running_longest(conn: Connection[Any], n: int, deep: int, fronts: int) -> list[Row]:
    """Return the `n` runs that have been running longest: `runs_running_longest` in sql/top.sql.

    At most `deep` runs are read of each of at most `fronts` pairs of queue and priority.
    """
    return rows(conn, "runs_running_longest", {"n": n, "deep": deep, "fronts": fronts})


def list_configured_queues(conn: Connection[Any]) -> list[Row]:
    """Return the queues that have settings or a pause."""
    return rows(conn, "queues_set_or_paused")


def list_urgent_jobs(conn: Connection[Any], n: int, find: str | None) -> list[Row]:
    """Return the `n` jobs that need attention first, or those with the text `find` in their names."""
    return add_times_of_calendars(conn, rows(conn, "jobs_of_interest", {"n": n, "find": find}))


def failing(conn: Connection[Any], n: int, deep: int) -> list[Row]:
    """Return the `n` failed runs that are retried next; of the scheduled runs `deep` are read."""
    return rows(conn, "runs_failing", {"n": n, "deep": deep})


def log_end(conn: Connection[Any], run_id: int, n: int, characters: int) -> list[Row]:
    """Return the last `n` rows of a run's output, of each the last `characters`."""
    return rows(conn, "run_log_end", {"id": run_id, "n": n, "characters": characters})


def runs_of_queue(conn: Connection[Any], queue: str | int | None, n: int) -> list[Row]:
    """Return the `n` runs of a queue that run or may be claimed, in the order of claims."""
    return rows(conn, "runs_of_queue", {"queue": queue, "n": n})
