"""One moment of the system for views that go on: cheap statements, each of which an index answers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import column, one, rows, value


def database_now(conn: Connection[Any]) -> datetime:
    """The time by the database's clock, which is the only one that counts."""
    moment: datetime = value(conn, "now")
    return moment


def jobs(conn: Connection[Any], since: datetime, n: int) -> list[Row]:
    """Jobs with the counts and lateness of their runs since then: jobs_live in sql/jobs.sql."""
    return rows(conn, "jobs_live", {"since": since, "n": n})


def newest_runs(conn: Connection[Any], n: int) -> list[Row]:
    """The newest runs."""
    return rows(conn, "runs_live", {"n": n})


def newest_leader(conn: Connection[Any]) -> Row | None:
    """The leader of the newest term; None: nobody ever led."""
    return one(conn, "leader_newest_term")


def workers(conn: Connection[Any]) -> list[Row]:
    """The workers that are alive."""
    return rows(conn, "workers_alive")


def succeeded_slots(conn: Connection[Any], job_id: int, start: datetime) -> list[datetime]:
    """The slots of a job from `start` on whose runs have succeeded."""
    return column(conn, "succeeded_slots", {"job_id": job_id, "start": start})


def open_runs(conn: Connection[Any], names: Iterable[str]) -> int:
    """How many runs of these jobs have not ended."""
    return int(value(conn, "open_runs", {"names": list(names)}))
