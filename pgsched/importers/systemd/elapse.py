"""Find out when a timer elapses, as schedules of pgsched.

Invariant: the slots of a schedule are the instants at which systemd lets the timer elapse, or there is a remark.

Calendar events and monotonic timers are in systemd.timer(5). pgsched has no start of a machine or of a unit. Intervals
count from the job's start, or from the end of its last run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse
from pgsched.errors import ScheduleError
from pgsched.importers.clock_changes import Rule, as_fixed, describe_change, first_difference
from pgsched.importers.file_values import length_text
from pgsched.importers.imported import Reason, Remark
from pgsched.importers.schedules.lengths import every
from pgsched.importers.systemd.calendar_events import CalendarEvent, EventRefused, parse_event
from pgsched.importers.systemd.event_cron import cron_expressions
from pgsched.importers.systemd.time_spans import parse_span
from pgsched.importers.systemd.units import Unit

ELAPSING = ("OnCalendar", "OnBootSec", "OnStartupSec", "OnActiveSec", "OnUnitActiveSec", "OnUnitInactiveSec")
AT_START = ("OnBootSec", "OnStartupSec", "OnActiveSec")
MOST_CHARACTERS = 512  # of a schedule
LAST_YEAR = 2199  # what a repetition of years ends with


@dataclass(slots=True)
class ElapseTimes:
    """When a timer elapses: one schedule, or an instant, with its bounds."""

    schedule: str | None = None
    timezone: str = "UTC"
    columns: dict[str, Any] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)


class NoJob(Exception):
    """The timer becomes no job."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.remark = Remark(reason, text)


def elapse_settings(timer: Unit) -> list[tuple[str, str]]:
    """Return the settings that say when a timer elapses; an empty one takes all others away."""
    found: list[tuple[str, str]] = []
    for name, value in timer.assignments("Timer"):
        if name in ELAPSING:
            found.append((name, value)) if value else found.clear()
    return found


def elapse_times(timer: Unit, timezone: str, now: datetime) -> list[ElapseTimes]:
    """Return when a timer elapses: one schedule for each zone. Raises NoJob."""
    settings = [(name, timer.resolve(value)) for name, value in elapse_settings(timer)]
    remarks: list[Remark] = []
    events = _events(settings, remarks)
    spans = _spans(settings, remarks)
    if events:
        found = [_of_events(zone, some, now) for zone, some in _by_zone(events, timezone).items()]
        left = spans
    else:
        interval, left = _of_spans(spans)
        found = [interval]
    found[0].remarks[:0] = remarks
    for name, length in left:
        reason = Reason.AT_REBOOT if name in AT_START else Reason.MONOTONIC
        found[0].remarks.append(Remark(reason, f"{name}={length_text(length)} is left out", "schedule"))
    return found


def _events(settings: list[tuple[str, str]], remarks: list[Remark]) -> list[CalendarEvent]:
    events = []
    for name, value in settings:
        if name == "OnCalendar":
            try:
                events.append(parse_event(value))
            except EventRefused as error:
                remarks.append(Remark(Reason.SYNTAX, f"OnCalendar: {error}", "schedule"))
    return events


def _spans(settings: list[tuple[str, str]], remarks: list[Remark]) -> list[tuple[str, timedelta]]:
    spans = []
    for name, value in settings:
        if name != "OnCalendar":
            try:
                length = parse_span(value)
            except ValueError as error:
                remarks.append(Remark(Reason.SYNTAX, f"{name}: {error}", "schedule"))
                continue
            if length is not None:
                spans.append((name, length))
    return spans


def _by_zone(events: list[CalendarEvent], timezone: str) -> dict[str, list[CalendarEvent]]:
    found: dict[str, list[CalendarEvent]] = {}
    for event in events:
        found.setdefault(event.timezone or timezone, []).append(event)
    return found


def _of_spans(spans: list[tuple[str, timedelta]]) -> tuple[ElapseTimes, list[tuple[str, timedelta]]]:
    """Return the schedule of monotonic timers, and what it does not cover. Raises NoJob."""
    repeating = [one for one in spans if one[0] not in AT_START]
    if not repeating:
        if spans:
            raise NoJob(Reason.AT_REBOOT, "elapses once after a start: leave it to systemd")
        raise NoJob(Reason.SYNTAX, "the timer never elapses")
    name, wanted = min(repeating, key=lambda one: (one[0] != "OnUnitActiveSec", one[1]))
    length = timedelta(seconds=round(wanted.total_seconds()))
    interval = every(length)
    if interval is None:
        raise NoJob(Reason.SCHEDULE, f"{name}={length_text(length)} is shorter than a second")
    if name == "OnUnitActiveSec":
        times = ElapseTimes(interval, columns={"overlap": "buffer_one"})
        text = "the interval counts from the job's start and not from the last start of the unit"
    else:
        times = ElapseTimes(interval.replace("@every", "@after"))
        text = "the interval counts from the end of the last run, also across a restart of the machine"
    times.remarks.append(Remark(Reason.MONOTONIC, f"{name}: {text}", "schedule"))
    return times, [one for one in repeating if one != (name, wanted)]


def _of_events(zone: str, events: list[CalendarEvent], now: datetime) -> ElapseTimes:
    """Return the schedule of calendar events in one zone. Raises NoJob."""
    times = ElapseTimes(timezone=zone)
    if len(events) == 1 and (instant := _instant(events[0], zone)):
        if instant <= now:
            raise NoJob(Reason.SCHEDULE, f"elapsed at {instant:%Y-%m-%d %H:%M:%S} UTC, and never again")
        times.columns["run_at"] = instant
        return times
    expressions: list[str] = []
    for event in events:
        found = cron_expressions(event)
        bounds = _bounds(event, zone, now)
        if found is None or bounds is None or (bounds and len(events) > 1):
            raise NoJob(Reason.SCHEDULE, "no cron expressions name these times: keep the timer, or split it")
        times.columns |= bounds
        if event.runs_over:
            text = "the first slot after it, at the start of a day, month or year, is left out by some versions"
            times.remarks.append(Remark(Reason.REPETITION, text, "schedule"))
        expressions += [one for one in found if one not in expressions]
    schedule = "; ".join(_as_in_systemd(expressions, zone, times, now))
    if len(schedule) > MOST_CHARACTERS:
        raise NoJob(Reason.SCHEDULE, f"as cron expressions it has more than {MOST_CHARACTERS} characters")
    times.schedule = schedule
    return times


def _as_in_systemd(expressions: list[str], zone: str, times: ElapseTimes, now: datetime) -> list[str]:
    """Return the expressions, written so that they do as systemd when clocks change, where that is possible."""
    for one in expressions:
        try:
            parse(one, zone)
        except ScheduleError as error:  # 30 February
            raise NoJob(Reason.SCHEDULE, f"{error}, neither here nor in systemd") from None
    change = first_difference(expressions, zone, Rule.SYSTEMD, now)
    if change is None:
        return expressions
    fixed = [as_fixed(one) for one in expressions]
    if fixed != expressions and first_difference(fixed, zone, Rule.SYSTEMD, now) is None:
        text = f"{describe_change(change)}: as systemd, it runs in the first of two equal hours only; {expressions[0]}"
        times.remarks.append(Remark(Reason.CLOCK_CHANGE_KEPT, f"{text} runs in both", "schedule"))
        return fixed
    if change.after > change.before:
        text = "systemd leaves its slots out, pgsched has one at the end of that time"
    else:
        text = "systemd has slots the first time only, pgsched both times"
    times.remarks.append(Remark(Reason.CLOCK_CHANGE, f"{describe_change(change)}: {text}", "schedule"))
    return expressions


def _instant(event: CalendarEvent, zone: str) -> datetime | None:
    """Return the only instant of an event, in UTC; None for other events."""
    parts = [event.years, event.months, event.days, event.hours, event.minutes, event.seconds]
    numbers = [next(iter(one)) for one in parts if one is not None and len(one) == 1]
    if len(numbers) < len(parts) or event.from_the_end or event.weekdays is not None or numbers[5] % 1_000_000:
        return None
    try:
        wall = datetime(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5] // 1_000_000)
    except ValueError:  # 30 February
        return None
    tz = zones.zone(zone)
    change = zones.change_at(tz, wall)
    if change is not None and change.after > change.before:
        return None
    return zones.instant_of(wall, zones.offset(tz, wall, 0))


def _bounds(event: CalendarEvent, zone: str, now: datetime) -> dict[str, datetime] | None:
    """Return starts_at and ends_at for the years of an event; None for years that are no range.

    Raises NoJob for years that are over.
    """
    if event.years is None:
        return {}
    years = sorted(event.years)
    if years[-1] < now.year - 1:
        raise NoJob(Reason.SCHEDULE, f"the year {years[-1]} is over")
    if years != [*range(years[0], years[-1] + 1)]:
        return None
    tz = zones.zone(zone)
    bounds = {"starts_at": datetime(years[0], 1, 1, tzinfo=tz).astimezone(UTC)}
    if years[-1] < LAST_YEAR:
        bounds["ends_at"] = datetime(years[-1], 12, 31, 23, 59, 59, tzinfo=tz).astimezone(UTC)
    return bounds
