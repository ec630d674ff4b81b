"""The order of jobs: which jobs wait for which (`jobs.after_jobs`), by the names that people know."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import slots

SHOWN = 100


def neighbours(conn: Connection[Any], job: Row) -> tuple[list[Row], list[Row]]:
    """Return the jobs that this one waits for, and those that wait for it; see jobs_after in sql/charts.sql."""
    found = slots.jobs_in_order(conn, job["id"], job["after_jobs"] or (), SHOWN)
    before, behind = ([row for row in found if row["side"] == side] for side in ("before", "behind"))
    return before, behind
