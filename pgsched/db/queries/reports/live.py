"""Figures for views that are refreshed all the time: cheap queries, each answered by an index."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import column, first_row, rows, value


def database_now(conn: Connection[Any]) -> datetime:
    """Return the time by the database's clock, the only clock that counts."""
    moment: datetime = value(conn, "now")
    return moment


def list_live_jobs(conn: Connection[Any], since: datetime, n: int) -> list[Row]:
    """Return jobs with counts and lateness of their runs since `since`: `jobs_live` in sql/status.sql."""
    return rows(conn, "jobs_live", {"since": since, "n": n})


def newest_runs(conn: Connection[Any], n: int) -> list[Row]:
    """Return the `n` newest runs, newest first."""
    return rows(conn, "runs_live", {"n": n})


def newest_leader(conn: Connection[Any]) -> Row | None:
    """Return the newest term and its leader; None: no process has ever led."""
    return first_row(conn, "leader_newest_term")


def list_live_workers(conn: Connection[Any]) -> list[Row]:
    """Return the workers that are alive."""
    return rows(conn, "workers_alive")


def succeeded_slots(conn: Connection[Any], job_id: int, start: datetime) -> list[datetime]:
    """Return the slots of a job from `start` on whose runs have succeeded."""
    return column(conn, "succeeded_slots", {"job_id": job_id, "start": start})


def count_open_runs_of(conn: Connection[Any], names: Iterable[str]) -> int:
    """Count the runs of these jobs that have not ended."""
    return int(value(conn, "open_runs", {"names": list(names)}))
