"""Queries that bound a page of runs (ids and instants), and the neighbours of one run in its graph."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import first_row, rows


def newest_of_job(conn: Connection[Any], job: str | None, before_id: int | None, n: int) -> list[int]:
    """Return the ids of the `n` newest runs of a job, by slot; `before_id`: only those before that run's slot."""
    return [row["id"] for row in rows(conn, "runs_of_job_newest", {"job": job, "before_id": before_id, "n": n})]


def end_behind_newest_bad(conn: Connection[Any], until: datetime | None, n: int) -> datetime | None:
    """Skip the `n` newest runs that ended badly, and return when the next one ended; None: there are fewer.

    `until`: only runs that ended before this instant; None: all.
    """
    row = first_row(conn, "runs_bad_since", {"until": until, "n": n})
    return None if row is None else row["finished_at"]


def newest_id(conn: Connection[Any]) -> int:
    """Return the highest id of a run, 0 without one."""
    row = first_row(conn, "run_newest_id")
    assert row is not None
    return int(row["id"])


def relatives(conn: Connection[Any], run_id: int, n: int) -> list[Row]:
    """Return up to `n` runs that this one waits for (`side` before), and `n` that wait for it (`side` behind)."""
    return rows(conn, "run_relatives", {"id": run_id, "n": n})
