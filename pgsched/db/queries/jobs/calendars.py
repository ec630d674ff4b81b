"""The rule: a job's excluded dates are rows of `job_calendars`; both ends count, and the database checks them."""

from __future__ import annotations

from datetime import date
from typing import Any

from pgsched.core.model import Row
from pgsched.core.schedule.calendar import said
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.jobs import known, show
from pgsched.db.rows import one, rows
from pgsched.errors import InputError

__all__ = ["add", "entries", "remove"]


def add(conn: Connection[Any], name: str, first: date, last: date, reason: str | None = None) -> Row:
    """Exclude the dates from `first` to `last`; returns the entry."""
    values = {"name": name, "from_date": first, "until_date": last, "reason": reason}
    return known(conn, name, one(conn, "calendar_add", values))


def remove(conn: Connection[Any], name: str, first: date, last: date) -> list[Row]:
    """Allow the dates from `first` to `last` again; returns the entries that were cut or removed, as they were."""
    show(conn, name)
    gone = rows(conn, "calendar_remove", {"name": name, "from_date": first, "until_date": last})
    if not gone:
        raise InputError(f'dates: job "{name}" has no {said(first, last, None)}', "dates")
    return gone


def entries(conn: Connection[Any], name: str) -> list[Row]:
    """All excluded dates of a job."""
    show(conn, name)
    return rows(conn, "calendar_list", {"name": name})
