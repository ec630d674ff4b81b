"""What a live view shows: jobs, newest runs, leader and workers, read in four cheap statements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import live


@dataclass(frozen=True, slots=True)
class Live:
    """One moment: `now` is the database's clock; each list holds rows as dictionaries (see sql/live_*.sql)."""

    now: datetime
    jobs: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    leader: dict[str, Any] | None
    workers: list[dict[str, Any]]


def look(conn: Connection[Any], since: datetime, n_jobs: int = 20, n_runs: int = 8) -> Live:
    """Read the moment; counts and lateness are over runs since `since`."""
    return Live(
        now=live.database_now(conn),
        jobs=live.jobs(conn, since, n_jobs),
        runs=live.newest_runs(conn, n_runs),
        leader=live.newest_leader(conn),
        workers=live.workers(conn),
    )
