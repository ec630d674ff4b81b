"""Entries of Celery beat as jobs.

Invariant: each entry becomes a job with its slots, or is named with the reason; what it cannot do here has a remark.

Sources: https://docs.celeryq.dev/en/stable/userguide/periodic-tasks.html (schedules),
https://docs.celeryq.dev/en/stable/userguide/calling.html (options).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.core.policies import PRESETS
from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse
from pgsched.errors import InputError, ScheduleError
from pgsched.importers.arguments import add_arguments
from pgsched.importers.celery.crontabs import Crontab, FieldRefused
from pgsched.importers.celery.options import Broker, add_options, read_seconds
from pgsched.importers.file_values import omit_refused
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark
from pgsched.importers.job_names import JobNames, clean_text
from pgsched.importers.schedules.lengths import every
from pgsched.importers.schedules.spellings import Rule, add_choice, choose_spelling, find_changes

MOST_JOBS = 20_000
OWN_TASKS = ("celery.backend_cleanup",)
# A wall clock that a zone skips is an instant for Python; one that comes twice runs in the first pass.
RULE = Rule(shifts=True, repeats=False)
POLICIES = {
    name: value
    for name, value in PRESETS["celery"].items()
    if value is not None and name in ("overlap", "catch_up", "catch_up_window", "max_attempts")
}
UNITS = ("day", "hour", "minute")
DAY = timedelta(days=1)
ABOUT_ALL = (Remark(Reason.TASK_NAME, "as in Celery"),)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval. `relative`: its runs are rounded down to its unit."""

    length: timedelta
    relative: bool = False


@dataclass(frozen=True, slots=True)
class Solar:
    """A schedule by the sun."""

    event: str


@dataclass(frozen=True, slots=True)
class Clocked:
    """One instant, of django-celery-beat."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Unread:
    """A schedule that is not read, with the reason."""

    reason: Reason
    text: str


AnySchedule = Crontab | Interval | Solar | Clocked | Unread


@dataclass(frozen=True, slots=True)
class Settings:
    """What an app says about its schedules.

    `timezone`: IANA name. `starting_deadline`: the setting beat_cron_starting_deadline, in seconds.
    """

    timezone: str = "UTC"
    broker: Broker = Broker.UNKNOWN
    starting_deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a schedule, as plain data.

    `parameters`: the names of the parameters of the task, where they are known.
    `own_clock`: the schedule has a nowfun. `remarks`: what could not be read.
    """

    name: str
    task: str
    schedule: AnySchedule
    where: str
    source: str = ""
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: Sequence[str] | None = None
    own_clock: bool = False
    remarks: Sequence[Remark] = ()
    enabled: bool = True
    one_off: bool = False
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    description: str = ""


def import_entries(entries: Iterable[Entry], settings: Settings, now: datetime) -> Imported:
    """Return the jobs of the entries. Raises InputError for too many or too long ones, and for a zone not known."""
    try:
        zones.zone(settings.timezone)
    except ScheduleError as error:
        raise InputError(f"Celery's timezone: {error.reason}", "timezone") from None
    found = Imported(remarks=list(ABOUT_ALL))
    listed = list(islice(entries, MOST_JOBS + 1))
    if len(listed) > MOST_JOBS:
        raise InputError(f"more than {MOST_JOBS:,} entries: that many are read at once")
    if any(isinstance(entry.schedule, Interval) for entry in listed):
        found.remarks.append(Remark(Reason.ANCHOR, "beat counts an interval from its own start"))
    names = JobNames()
    for entry in listed:
        job = import_entry(entry, settings, now)
        if isinstance(job, Omitted):
            found.omitted.append(job)
        else:
            found.add(replace(job, name=names.take(job.name)))
    return omit_refused(found)


def import_entry(entry: Entry, settings: Settings, now: datetime) -> ImportedJob | Omitted:
    """Return the job of an entry, or why there is none."""
    if (remark := refuse(entry)) is not None:
        return Omitted(entry.where, entry.source, remark)
    columns: dict[str, Any] = {"task": entry.task}
    options = dict(entry.options)
    try:
        remarks = add_schedule(columns, entry.schedule, options.pop("countdown", None), settings, now)
    except FieldRefused as error:
        return Omitted(entry.where, entry.source, Remark(Reason.SYNTAX, str(error)))
    except ScheduleError as error:
        return Omitted(entry.where, entry.source, Remark(Reason.SCHEDULE, str(error)))
    if entry.own_clock:
        remarks.append(Remark(Reason.NOWFUN, "nowfun", "schedule"))
    remarks += [*entry.remarks, *add_life(columns, entry)]
    remarks += add_arguments(columns, entry.args or None, entry.kwargs or None, parameters=entry.parameters)
    columns |= POLICIES
    if isinstance(entry.schedule, Crontab) and (deadline := read_seconds(settings.starting_deadline)) is not None:
        columns["catch_up_window"] = deadline
    remarks += add_options(columns, options, settings.broker, zones.zone(settings.timezone))
    return ImportedJob(entry.name, columns, remarks, entry.where, entry.source)


def refuse(entry: Entry) -> Remark | None:
    """Return why an entry becomes no job; None if it may."""
    if entry.task in OWN_TASKS:
        return Remark(Reason.OWN_JOB, entry.task)
    if not (entry.name and entry.task):
        return Remark(Reason.SYNTAX, "it has no name or no task")
    match entry.schedule:
        case Unread(reason, text):
            return Remark(reason, text)
        case Solar(event):
            return Remark(Reason.SOLAR, event)
    return None


def add_schedule(
    columns: dict[str, Any], schedule: AnySchedule, countdown: Any, settings: Settings, now: datetime
) -> list[Remark]:
    """Add when a job runs. `countdown`: by how much each message is delayed, in seconds.

    Raises FieldRefused, ScheduleError.
    """
    match schedule:
        case Clocked(at):
            columns["run_at"] = at
        case Crontab():
            return add_crontab(columns, schedule, countdown, settings, now)
        case Interval():
            remarks = add_interval(columns, schedule, settings, now)
            if countdown:
                remarks.append(Remark(Reason.ANCHOR, f"countdown={countdown!r:.20}", "schedule"))
            return remarks
    return [Remark(Reason.COUNTDOWN, f"countdown={countdown!r:.20}", "run_at")] if countdown else []


def add_crontab(
    columns: dict[str, Any], crontab: Crontab, countdown: Any, settings: Settings, now: datetime
) -> list[Remark]:
    """Add a crontab. A delay of its messages moves the minutes and seconds, where it stays in the same hour."""
    fields, remarks = crontab.fields(), []
    if countdown:
        moved = fields.delayed(int(countdown)) if isinstance(countdown, int | float) and countdown % 1 == 0 else None
        fields = moved or fields
        if moved is None:
            remarks.append(Remark(Reason.COUNTDOWN, f"countdown={countdown!r:.20}", "schedule"))
    timezone = crontab.timezone or settings.timezone
    choice = choose_spelling(fields, timezone, RULE, now)
    if choice is None:
        raise ScheduleError("day of month", "no expression says that a day must match both fields of days")
    parse(choice.expression, timezone)
    add_choice(columns, remarks, choice, timezone)
    return remarks


def add_interval(columns: dict[str, Any], interval: Interval, settings: Settings, now: datetime) -> list[Remark]:
    """Add an interval. Celery adds it to a wall clock: so a day stays a day where clocks change."""
    schedule = every(interval.length)
    if schedule is None:
        raise ScheduleError("schedule", f"an interval of {interval.length}, which is no number of seconds")
    remarks = []
    if interval.relative and interval.length == DAY:
        columns["schedule"] = "0 0 * * *"
        if settings.timezone != "UTC":
            columns["timezone"] = settings.timezone
        return [Remark(Reason.RELATIVE, "each day at midnight", "schedule")]
    parse(schedule)
    columns["schedule"] = schedule
    if interval.relative:
        columns["starts_at"] = round_down(now, interval.length, zones.zone(settings.timezone))
        remarks.append(Remark(Reason.RELATIVE, "starts_at is rounded, and the slots with it", "starts_at"))
    if find_changes(settings.timezone, now.replace(hour=0, minute=0, second=0, microsecond=0)):
        remarks.append(Remark(Reason.CLOCK_CHANGE, "Celery adds the interval to the wall clock, pgsched to the instant",
                              "schedule"))  # fmt: skip
    return remarks


def round_down(now: datetime, length: timedelta, tz: ZoneInfo) -> datetime:
    """Return the present instant, rounded down to the unit of an interval: a day, an hour or a minute."""
    local = now.astimezone(tz).replace(second=0, microsecond=0)
    if length >= timedelta(hours=1):
        local = local.replace(minute=0)
    return (local.replace(hour=0) if length >= DAY else local).astimezone(now.tzinfo)


def add_life(columns: dict[str, Any], entry: Entry) -> list[Remark]:
    """Add what django-celery-beat says: from and until when an entry runs, whether only once, and whether at all."""
    for name, value in (("starts_at", entry.starts_at), ("ends_at", entry.ends_at)):
        if value is not None and "run_at" not in columns:
            columns[name] = value
    if entry.description:
        columns["description"] = clean_text(entry.description)
    remarks = []
    if entry.one_off and "run_at" not in columns:
        columns["max_runs"] = 1
        remarks.append(Remark(Reason.ONE_OFF, "one_off", "max_runs"))
    if not entry.enabled:
        columns["paused"] = True
        remarks.append(Remark(Reason.SUSPENDED, "it is not enabled", "paused"))
    return remarks
