"""What a live view shows: jobs, newest runs, leader and workers, read in four cheap statements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.rows import one, rows, value


@dataclass(frozen=True, slots=True)
class Live:
    """One moment: `now` is the database's clock; each list holds rows as dictionaries (see sql/live_*.sql)."""

    now: datetime
    jobs: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    leader: dict[str, Any] | None
    workers: list[dict[str, Any]]


def live(conn: Connection[Any], since: datetime, n_jobs: int = 20, n_runs: int = 8) -> Live:
    """Read the moment; counts and lateness are over runs since `since`."""
    return Live(
        now=database_now(conn),
        jobs=rows(conn, "jobs_live", {"since": since, "n": n_jobs}),
        runs=rows(conn, "runs_live", {"n": n_runs}),
        leader=one(conn, "leader_newest_term"),
        workers=rows(conn, "workers_alive"),
    )


def database_now(conn: Connection[Any]) -> datetime:
    """The one clock."""
    moment: datetime = value(conn, "now")
    return moment
