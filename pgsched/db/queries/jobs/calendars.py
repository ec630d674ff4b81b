"""Excluded dates of jobs: add, remove and list them.

Invariant: a job's excluded dates are rows of `job_calendars`. A row excludes its first date, its last date and all
dates between them. The database checks the dates.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from pgsched.core.model import Row
from pgsched.core.schedule.calendar import describe_dates
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.jobs import require_row, show_job
from pgsched.db.rows import first_row, rows
from pgsched.errors import InputError

__all__ = ["add_dates", "entries", "remove"]


def add_dates(conn: Connection[Any], name: str, first: date, last: date, reason: str | None = None) -> Row:
    """Exclude the dates from `first` to `last`, both included; return the entry.

    An entry that begins at the same date is replaced. Raises NotFound for an unknown job.
    """
    values = {"name": name, "from_date": first, "until_date": last, "reason": reason}
    return require_row(conn, name, first_row(conn, "calendar_add", values))


def remove(conn: Connection[Any], name: str, first: date, last: date) -> list[Row]:
    """Allow the dates from `first` to `last` again; return the entries that were cut or removed, as they were.

    Raises InputError where none of these dates is excluded, and NotFound for an unknown job.
    """
    show_job(conn, name)
    gone = rows(conn, "calendar_remove", {"name": name, "from_date": first, "until_date": last})
    if not gone:
        raise InputError(f'dates: job "{name}" has no {describe_dates(first, last, None)}', "dates")
    return gone


def entries(conn: Connection[Any], name: str) -> list[Row]:
    """Return all excluded dates of a job, by date. Raises NotFound for an unknown job."""
    show_job(conn, name)
    return rows(conn, "calendar_list", {"name": name})
