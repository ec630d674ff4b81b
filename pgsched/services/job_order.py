"""Jobs that wait for each other (`jobs.after_jobs`), by name: what people know them by."""

from __future__ import annotations

from typing import Any

from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import Row, rows

SHOWN = 100


def neighbours(conn: Connection[Any], job: Row) -> tuple[list[Row], list[Row]]:
    """The jobs that this one waits for, and those that wait for it; see jobs_after in sql/charts.sql."""
    found = rows(conn, "jobs_after", {"id": job["id"], "after": plain(job["after_jobs"] or ()), "n": SHOWN})
    before, behind = ([row for row in found if row["side"] == side] for side in ("before", "behind"))
    return before, behind
