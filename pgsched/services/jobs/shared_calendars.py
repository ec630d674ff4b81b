"""Calendars that jobs share: list, show, make, change, delete and import them.

Invariant: a change is one transaction: all of its times, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgsched.core.calendars.ical import ReadCalendar
from pgsched.core.calendars.times import CalendarTime, describe_time, is_same_time
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import shared_calendars
from pgsched.errors import InputError


@dataclass(frozen=True, slots=True)
class CalendarDetail:
    """A calendar: its row, its times (each as (id, time)), and the jobs that use it (each as (name, on_excluded))."""

    calendar: Row
    times: list[tuple[int, CalendarTime]]
    jobs: list[tuple[str, str]]


def list_calendars(conn: Connection[Any]) -> list[Row]:
    """Return all calendars by name, each with figures of its times and jobs."""
    return shared_calendars.list_calendars(conn)


def show_calendar(conn: Connection[Any], name: str) -> CalendarDetail:
    """Return a calendar with its times and jobs. Raises NotFound."""
    found = shared_calendars.show_calendar(conn, name)
    times = [(row["id"], time_of_row(row)) for row in shared_calendars.times_of_calendar(conn, name)]
    users = [(row["name"], row["on_excluded"]) for row in shared_calendars.users_of(conn, name)]
    return CalendarDetail(found, times, users)


def time_of_row(row: Row) -> CalendarTime:
    """Return a row of `calendar_times` as a value."""
    weekdays = None if row["weekdays"] is None else tuple(row["weekdays"])
    return CalendarTime(
        row["from_date"], row["until_date"], weekdays, row["from_time"], row["until_time"], row["reason"]
    )  # fmt: skip


def add_times(
    conn: Connection[Any], name: str, times: Sequence[CalendarTime], description: str | None = None
) -> tuple[bool, int]:
    """Add times to a calendar, which is made if there is none; return whether it was made, and how many are new.

    `description`: also of a calendar that exists, if one is given. Raises InputError.
    """
    with conn.transaction():
        is_new = shared_calendars.make_calendar(conn, name, description)
        if not is_new and description is not None:
            shared_calendars.describe_calendar(conn, name, description)
        return is_new, shared_calendars.add_times(conn, name, times)


def remove_times(
    conn: Connection[Any], name: str, time: CalendarTime | None, ids: Sequence[int] = ()
) -> list[CalendarTime]:
    """Remove the times of a calendar that equal a time, or have these ids; return them.

    Raises NotFound for an unknown calendar, and InputError where there is no such time.
    """
    with conn.transaction():
        times = show_calendar(conn, name).times
        gone = [(key, one) for key, one in times if key in ids or (time is not None and is_same_time(one, time))]
        if missing := set(ids) - {key for key, _ in gone}:
            raise InputError(f"id: calendar {name} has no time with id {min(missing)}", "id")
        if not gone:
            wanted = "" if time is None else f' "{describe_time(time)}"'
            raise InputError(f"time: calendar {name} has no time{wanted}: `pgsched calendar show` lists them", "time")
        shared_calendars.remove_times(conn, name, [key for key, _ in gone])
    return [one for _, one in gone]


def delete_calendar(conn: Connection[Any], name: str) -> None:
    """Delete a calendar. Raises InputError where jobs use it, and NotFound."""
    shared_calendars.delete_calendar(conn, name)


def import_times(conn: Connection[Any], name: str, read: ReadCalendar, *, replace: bool = False) -> tuple[int, int]:
    """Add the times of a file to a calendar, which is made if there is none; return how many were added and removed.

    `replace`: remove the times that the file does not have. Raises InputError where some of its events are not
    understood: the times of these would be removed, too.
    """
    if replace and read.remarks:
        raise InputError(
            "replace: nothing is changed, as the file has events that are not understood: their times would be removed",
            "replace",
        )
    with conn.transaction():
        shared_calendars.make_calendar(conn, name, None)
        old: list[int] = []
        if replace:
            wanted = set(map(as_typed, read.times))
            old = [key for key, one in show_calendar(conn, name).times if as_typed(one) not in wanted]
        if old:
            shared_calendars.remove_times(conn, name, old)
        return shared_calendars.add_times(conn, name, read.times), len(old)


def as_typed(time: CalendarTime) -> tuple[str, str | None]:
    """Return a time as a value that does not depend on how its hours are written."""
    return describe_time(time), time.reason
