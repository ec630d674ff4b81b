"""Calendars that jobs share: read their times for whoever computes slots, and change them.

Invariant: whoever computes slots of a job takes the times of its calendar from here. The database checks what is
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pgsched.core import text
from pgsched.core.calendars.times import CalendarTime
from pgsched.core.model import Row
from pgsched.core.schedule.calendar import ReadRows, read_rows
from pgsched.db.arrays import literal, plain
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import raise_explained
from pgsched.db.rows import fetch, first_row, rows, value
from pgsched.errors import NotFound, NotPermitted

MOST = 10_000  # calendars that are listed
USERS = 100  # jobs of a calendar that are listed
# The times of a calendar, as core/schedule/calendar.py takes them.
CalendarTimes = ReadRows


class CalendarCache:
    """The times of calendars as they were read last. What has not changed is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, CalendarTimes]] = {}

    def times_of(self, conn: Connection[Any], names: Iterable[str | None]) -> dict[str, CalendarTimes]:
        """Return the times of these calendars as they are now, by name."""
        wanted = sorted({name for name in names if name is not None})
        if not wanted:
            return {}
        versions = literal(self._known[name][0] if name in self._known else None for name in wanted)
        for row in fetch(conn, "calendars_times", {"names": literal(wanted), "versions": versions}):
            if row["times"] is not None:
                self._known[row["name"]] = (row["version"], read_rows(row["times"]))
        return {name: self._known[name][1] for name in wanted if name in self._known}


def add_times_of_calendars(conn: Connection[Any], jobs: Sequence[Row]) -> list[Row]:
    """Return rows of jobs, each with `calendar_times`: the times of its calendar; None without one."""
    found = CalendarCache().times_of(conn, (job.get("calendar") for job in jobs))
    return [job | {"calendar_times": found.get(job["calendar"]) if job.get("calendar") else None} for job in jobs]


def list_calendars(conn: Connection[Any]) -> list[Row]:
    """Return all calendars by name: `calendars_list` in sql/jobs.sql."""
    return rows(conn, "calendars_list", {"name": None, "n": MOST})


def show_calendar(conn: Connection[Any], name: str) -> Row:
    """Return a calendar. Raises NotFound."""
    found = first_row(conn, "calendars_list", {"name": name, "n": 1})
    if found is None:
        raise unknown_calendar(conn, name)
    return found


def times_of_calendar(conn: Connection[Any], name: str) -> list[Row]:
    """Return the times of a calendar."""
    return rows(conn, "calendars_rows", {"name": name})


def users_of(conn: Connection[Any], name: str) -> list[Row]:
    """Return jobs that use a calendar, at most USERS."""
    return rows(conn, "calendars_users", {"name": name, "n": USERS})


def make_calendar(conn: Connection[Any], name: str, description: str | None) -> bool:
    """Make a calendar; return False if there is one of that name."""
    return first_row(conn, "calendars_make", {"name": name, "description": description}) is not None


def describe_calendar(conn: Connection[Any], name: str, description: str) -> None:
    """Change the description of a calendar. Raises NotFound, and NotPermitted for another role's."""
    if first_row(conn, "calendars_describe", {"name": name, "description": description}) is None:
        owner = show_calendar(conn, name)["owner"]
        raise NotPermitted(f'permission denied: calendar "{name}" belongs to role "{owner}"')


def add_times(conn: Connection[Any], name: str, times: Sequence[CalendarTime]) -> int:
    """Add times to a calendar, except those that it has already; return how many.

    Raises InputError for a time that the database refuses, and for an unknown calendar.
    """
    values = {
        "name": name,
        "from_dates": literal(one.from_date and one.from_date.isoformat() for one in times),
        "until_dates": literal(one.until_date and one.until_date.isoformat() for one in times),
        "weekdays": literal(None if one.weekdays is None else plain(one.weekdays) for one in times),
        "from_times": literal(one.from_time for one in times),
        "until_times": literal(one.until_time for one in times),
        "reasons": literal(one.reason for one in times),
    }
    with raise_explained():
        return int(value(conn, "calendars_add", values)) if times else 0


def remove_times(conn: Connection[Any], name: str, ids: Sequence[int]) -> int:
    """Remove times of a calendar; return how many. Raises NotFound."""
    found = value(conn, "calendars_remove", {"name": name, "ids": plain(ids)})
    if found is None:
        raise unknown_calendar(conn, name)
    return int(found)


def delete_calendar(conn: Connection[Any], name: str) -> None:
    """Delete a calendar that no job uses. Raises InputError where jobs use it, and NotFound."""
    with raise_explained():
        found = value(conn, "calendars_delete", {"name": name})
    if found is None:
        raise unknown_calendar(conn, name)


def unknown_calendar(conn: Connection[Any], name: str) -> NotFound:
    """Make the error for an unknown calendar, with the names that may have been meant."""
    hint = text.did_you_mean(name, [row["name"] for row in list_calendars(conn)])
    return NotFound(f'there is no calendar named "{name}"{hint or ": `pgsched calendar list` shows those that exist"}')
