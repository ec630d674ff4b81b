"""The tables of django-celery-beat as entries of Celery beat.

Invariant: each row of the table of periodic tasks becomes an entry.

What the columns mean: https://django-celery-beat.readthedocs.io/en/latest/reference/django-celery-beat.models.html. A
crontab has its own zone; a row has one of four schedules; `expires` ends the schedule, and `expire_seconds` a message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pgsched.importers.celery.crontabs import FieldRefused, read_crontab
from pgsched.importers.celery.entries import AnySchedule, Clocked, Entry, Interval, Solar, Unread
from pgsched.importers.imported import Reason

PREFIX = "django_celery_beat_"
TASKS = f"{PREFIX}periodictask"
INTERVALS = f"{PREFIX}intervalschedule"
CRONTABS = f"{PREFIX}crontabschedule"
SOLARS = f"{PREFIX}solarschedule"
CLOCKED = f"{PREFIX}clockedschedule"
TABLES = (TASKS, INTERVALS, CRONTABS, SOLARS, CLOCKED)
PERIODS = ("days", "hours", "minutes", "seconds", "microseconds")
MOST_ARGUMENTS = 1024 * 1024  # characters


class DamagedJson:
    """Stands for the arguments of a row whose text is no JSON."""


Rows = Sequence[Mapping[str, Any]]


def read_entries(tables: Mapping[str, Rows]) -> Iterator[Entry]:
    """Yield the entries of the tables, by name."""
    schedules = {name: {row.get("id"): row for row in tables[name]} for name in TABLES if name != TASKS}
    for row in sorted(tables[TASKS], key=lambda row: str(row.get("name"))):
        yield read_entry(row, schedules)


def read_entry(row: Mapping[str, Any], schedules: Mapping[str, Mapping[Any, Mapping[str, Any]]]) -> Entry:
    """Return the entry of a periodic task."""
    schedule, source = read_schedule(row, schedules)
    options = {
        name: row.get(name)
        for name in ("queue", "exchange", "routing_key", "priority")
        if row.get(name) not in (None, "")
    }
    if row.get("expire_seconds"):
        options["expires"] = row["expire_seconds"]
    headers = read_json(row.get("headers"), {})
    if headers:
        options["headers"] = headers
    return Entry(
        name=str(row.get("name") or ""),
        task=str(row.get("task") or ""),
        schedule=schedule,
        where=f"row {row.get('id')}",
        source=source,
        args=read_json(row.get("args"), []),
        kwargs=read_json(row.get("kwargs"), {}),
        options=options,
        enabled=bool(row.get("enabled", True)),
        one_off=bool(row.get("one_off")),
        starts_at=read_instant(row.get("start_time")),
        ends_at=read_instant(row.get("expires")),
        description=str(row.get("description") or ""),
    )


def read_schedule(
    row: Mapping[str, Any], schedules: Mapping[str, Mapping[Any, Mapping[str, Any]]]
) -> tuple[AnySchedule, str]:
    """Return the schedule of a row, and how a comment shows it."""
    for column, table, read in (
        ("interval_id", INTERVALS, read_interval),
        ("crontab_id", CRONTABS, read_cron),
        ("solar_id", SOLARS, read_solar),
        ("clocked_id", CLOCKED, read_clocked),
    ):
        if row.get(column) is not None:
            found = schedules[table].get(row[column])
            if found is not None:
                return read(found)
    return Unread(Reason.SYNTAX, "it has no schedule"), ""


def read_interval(row: Mapping[str, Any]) -> tuple[AnySchedule, str]:
    """Return an interval: a number of periods."""
    every, period = row.get("every"), row.get("period")
    source = f"every {every} {period}"
    if not isinstance(every, int) or every < 1 or period not in PERIODS:
        return Unread(Reason.SYNTAX, source), source
    try:
        return Interval(timedelta(**{period: every})), source
    except OverflowError:
        return Unread(Reason.SCHEDULE, source), source


def read_cron(row: Mapping[str, Any]) -> tuple[AnySchedule, str]:
    """Return a crontab in its zone."""
    names = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
    minute, hour, weekday, day, month = (str(row.get(name) or "*") for name in names)
    zone = str(row.get("timezone") or "UTC")
    source = f"{minute} {hour} {day} {month} {weekday} {zone}"
    try:
        return read_crontab(minute, hour, weekday, day, month, zone), source
    except FieldRefused as error:
        return Unread(Reason.SYNTAX, str(error)), source


def read_solar(row: Mapping[str, Any]) -> tuple[AnySchedule, str]:
    """Return a schedule by the sun."""
    source = f"{row.get('event')} at {row.get('latitude')}, {row.get('longitude')}"
    return Solar(source), source


def read_clocked(row: Mapping[str, Any]) -> tuple[AnySchedule, str]:
    """Return one instant."""
    at = read_instant(row.get("clocked_time"))
    return (Unread(Reason.SYNTAX, "it has no time") if at is None else Clocked(at)), f"at {at}"


def read_instant(value: Any) -> datetime | None:
    """Return an instant, in UTC; SQLite has it as text, and Django writes UTC there. None for anything else."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:  # the year 0001, east of Greenwich
        return None


def read_json(text: Any, empty: Any) -> Any:
    """Return the JSON of a column; DamagedJson, which becomes a remark, where it has none."""
    if text in (None, ""):
        return empty
    try:
        return json.loads(str(text)[:MOST_ARGUMENTS])
    except (ValueError, RecursionError):
        return DamagedJson()
