"""The history of a job's slots: strips of the newest, days of a month, and slots around clock changes.

Invariant: days are those of the job's time zone. Reads are bounded, and the result shows where reading ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from pgsched.core.model import Row
from pgsched.core.planning.job_schedule import job_schedule
from pgsched.core.schedule import zones
from pgsched.core.schedule.preview import PreviewSlot, next_slots
from pgsched.core.schedule.zones import Change
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import slots
from pgsched.errors import ScheduleError

SHOWN = 50  # slots of a strip
READ = 4000  # rows that a month reads at most
DAY, WEEK, YEAR = timedelta(days=1), timedelta(days=7), timedelta(days=366)
SHIFT, AROUND = timedelta(microseconds=1), 5


@dataclass(frozen=True, slots=True)
class Day:
    """A day in the job's time zone. `counts`: slots by result (ran, late, skipped, missed, dead, open)."""

    date: date
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Month:
    """The days of a month.

    `read_from`: the instant at which reading ended before it reached the month's begin; None: all was read.
    """

    first: date
    days: tuple[Day, ...]
    read_from: datetime | None


def read_strips(conn: Connection[Any], job_ids: Iterable[int], n: int = SHOWN) -> dict[int, list[Row]]:
    """Return the newest slots of each job, oldest first, each with its `appearance_of`."""
    found: dict[int, list[Row]] = {}
    for row in slots.newest(conn, job_ids, n):
        found.setdefault(row["job_id"], []).append(row | {"look": appearance_of(row)})
    return found


def appearance_of(row: Row) -> str:
    """Return the state of a slot, or `late` if it succeeded after a late start."""
    return "late" if row["late_s"] is not None and row["state"] == "succeeded" else str(row["state"])


def read_month(conn: Connection[Any], job: Row, first: date) -> Month:
    """Return the results of a month's slots, day by day."""
    end = (first + 31 * DAY).replace(day=1)
    dates = [first + n * DAY for n in range((end - first).days)]
    edges = [midnight(day, job["timezone"]) for day in (*dates, end)]
    found = slots.by_day(conn, job["id"], edges, READ)
    counts: dict[int, dict[str, int]] = {}
    for row in found:
        counts.setdefault(row["day"], {})[row["kind"]] = row["slots"]
    days = tuple(Day(day, counts.get(n, {})) for n, day in enumerate(dates, 1))
    cut = sum(row["read"] for row in found) >= READ
    return Month(first, days, min(row["first_at"] for row in found) if cut else None)


def list_of_day(conn: Connection[Any], job: Row, day: date, until: datetime | None, n: int) -> list[Row]:
    """Return the slots of a day that have a row, newest first, each with its `appearance_of`.

    `until`: only slots before this instant, if given.
    """
    start, end = (midnight(one, job["timezone"]) for one in (day, day + DAY))
    return list_between(conn, job["id"], start, min(end, until or end), n)


def list_between(conn: Connection[Any], job_id: int, from_at: datetime, until_at: datetime, n: int) -> list[Row]:
    """Return the newest slots with a row in a stretch of time, newest first, each with its `appearance_of`."""
    return [row | {"look": appearance_of(row)} for row in slots.between(conn, job_id, from_at, until_at, n)]


def midnight(day: date, timezone: str) -> datetime:
    """Return the instant at which a day begins in a time zone."""
    return datetime.combine(day, time(), zones.zone(timezone)).astimezone(UTC)


def around_changes(job: Row) -> list[tuple[Change, list[PreviewSlot]]]:
    """Return the slots around the clock changes of the next year, so that people can check them before."""
    if job["schedule"] is None:
        return []
    try:
        schedule = job_schedule(job)
    except ScheduleError:
        return []
    if schedule.fixed_delay is not None:
        return []
    found = []
    for change in zones.changes(zones.zone(job["timezone"]), job["now"], job["now"] + YEAR):
        behind = schedule.after(change.at)
        further = None if behind is None else schedule.after(behind)
        if behind is None or further is None or behind - change.at > WEEK:
            continue
        step = min(further - behind, WEEK)
        found.append((change, next_slots(schedule, max(job["now"], change.at - 2 * step - SHIFT), AROUND)))
    return found
