"""What bounds a page of runs, and the neighbours of one run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import one, rows


def newest_of_job(conn: Connection[Any], job: str | None, before_id: int | None, n: int) -> list[int]:
    """The ids of the newest runs of a job, by slot."""
    return [row["id"] for row in rows(conn, "runs_of_job_newest", {"job": job, "before_id": before_id, "n": n})]


def bad_since(conn: Connection[Any], until: datetime | None, n: int) -> datetime | None:
    """The end of the `n`th run that ended badly, counted back from `until` (None: now); None: there are fewer."""
    row = one(conn, "runs_bad_since", {"until": until, "n": n})
    return None if row is None else row["finished_at"]


def newest_id(conn: Connection[Any]) -> int:
    """The highest id of a run."""
    row = one(conn, "run_newest_id")
    assert row is not None
    return int(row["id"])


def relatives(conn: Connection[Any], run_id: int, n: int) -> list[Row]:
    """The runs that this one waits for (`side` before) and those that wait for it (`side` behind)."""
    return rows(conn, "run_relatives", {"id": run_id, "n": n})
