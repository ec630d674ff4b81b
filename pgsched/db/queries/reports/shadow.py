"""The jobs and slots that are compared with another scheduler's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.shared_calendars import add_times_of_calendars
from pgsched.db.rows import rows

PAGE = 10_000


def compared_jobs(conn: Connection[Any], names: Sequence[str] | None, n: int) -> list[Row]:
    """Return up to `n` jobs by name: those with these names, or with None those in mode shadow."""
    found = rows(conn, "shadow_jobs", {"names": None if names is None else list(names), "n": n})
    return add_times_of_calendars(conn, found)


def decided_slots(conn: Connection[Any], job_id: int, after: datetime, until: datetime) -> Iterator[Row]:
    """Yield the rows of a job's slots in (after, until] that ran, or would have run but for the mode shadow."""
    while True:
        page = slots_page(conn, job_id, after, until, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1]["scheduled_at"]


def slots_page(conn: Connection[Any], job_id: int, after: datetime, until: datetime, n: int) -> list[Row]:
    """Return the first `n` of these rows."""
    return rows(conn, "shadow_slots", {"job_id": job_id, "after": after, "until": until, "n": n})
