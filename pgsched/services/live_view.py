"""The data of a live view: jobs, newest runs, leader and workers, read in a few cheap statements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import live


@dataclass(frozen=True, slots=True)
class Live:
    """One moment of the system.

    `now`: the database's clock.
    `jobs`, `runs`, `leader`, `workers`: rows as dictionaries (see pgsched/db/queries/reports/live.py).
    """

    now: datetime
    jobs: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    leader: dict[str, Any] | None
    workers: list[dict[str, Any]]


def read_live_view(conn: Connection[Any], since: datetime, n_jobs: int = 20, n_runs: int = 8) -> Live:
    """Read the moment; counts and lateness cover the runs since `since`."""
    return Live(
        now=live.database_now(conn),
        jobs=live.list_live_jobs(conn, since, n_jobs),
        runs=live.newest_runs(conn, n_runs),
        leader=live.newest_leader(conn),
        workers=live.list_live_workers(conn),
    )
