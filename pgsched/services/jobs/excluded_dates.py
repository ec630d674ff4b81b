"""A job's excluded dates: exclude some, allow them again, list them. Both ends count, in the job's time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, Self

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import calendars


@dataclass(frozen=True, slots=True)
class ExcludedDates:
    """The first and the last of some excluded dates, as `2026-12-24`, and the reason."""

    from_date: str
    until_date: str
    reason: str | None

    @classmethod
    def of(cls, row: Row) -> Self:
        """Build an entry from its row."""
        return cls(str(row["from_date"]), str(row["until_date"]), row["reason"])


def exclude(conn: Connection[Any], job: str, first: date, last: date, reason: str | None = None) -> ExcludedDates:
    """Exclude these dates from a job. Raises NotFound, or InputError where they overlap excluded ones."""
    return ExcludedDates.of(calendars.add_dates(conn, job, first, last, reason))


def allow(conn: Connection[Any], job: str, first: date, last: date) -> list[ExcludedDates]:
    """Let the job run on these dates again; return the entries that were cut or removed, as they were."""
    return [ExcludedDates.of(row) for row in calendars.remove(conn, job, first, last)]


def entries(conn: Connection[Any], job: str) -> list[ExcludedDates]:
    """Return all excluded dates of a job. Raises NotFound."""
    return [ExcludedDates.of(row) for row in calendars.entries(conn, job)]
