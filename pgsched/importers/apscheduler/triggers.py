"""The triggers of APScheduler 3 as columns of a job.

Invariant: the columns have the slots of the trigger, or a remark says which differ, or NotWritten is raised.

Sources, below https://apscheduler.readthedocs.io/en/3.x/modules/triggers/: cron.html, interval.html, date.html,
combining.html, calendarinterval.html.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse
from pgsched.errors import ScheduleError
from pgsched.importers.apscheduler.cron import Cron, NotWritten, read_fields
from pgsched.importers.apscheduler.pickles import CLASSES, TRIGGERS, Known, describe_kind
from pgsched.importers.apscheduler.times import NotRead, read_date, read_datetime, read_timedelta, read_zone
from pgsched.importers.imported import Reason, Remark
from pgsched.importers.schedules.fields import Fields
from pgsched.importers.schedules.lengths import every
from pgsched.importers.schedules.spellings import Rule, add_choice, choose_spelling

SECOND = timedelta(seconds=1)
DEEPEST = 5  # combinations of one trigger, in each other
# A wall clock that a zone skips is an instant for Python, and one that comes twice matches twice.
CRON = Rule(shifts=True, repeats=True)
# "If the resulting datetime is invalid due to a daylight saving forward shift, the date is discarded".
CALENDAR_INTERVAL = Rule(shifts=False, repeats=False)


@dataclass(slots=True)
class Plan:
    """When a job runs, as columns, with remarks."""

    columns: dict[str, Any]
    remarks: list[Remark] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Walls:
    """The wall clocks of a cron trigger, in a zone, between two instants, each with a random delay."""

    cron: Cron
    timezone: str
    start: datetime | None
    end: datetime | None
    jitter: Any


def read_trigger(trigger: Any, now: datetime, depth: int = 0) -> Plan:
    """Return the columns of a trigger. `depth`: in so many combinations. Raises NotWritten."""
    if not isinstance(trigger, Known) or not trigger.name.startswith(TRIGGERS):
        raise NotWritten(f"the trigger {describe_kind(trigger)}, which is none of APScheduler's own")
    kind = trigger.name.rpartition(".")[2]
    read = READERS.get(kind)
    state = trigger.state[1] if isinstance(trigger.state, tuple) and len(trigger.state) == 2 else trigger.state
    if read is None or not isinstance(state, dict):
        raise NotWritten(f"the trigger {trigger.name}, whose state is not read")
    try:
        if kind in COMBINATIONS and len(children := read_children(state)) == 1:
            return read_only_child(children[0], state.get("jitter"), now, depth + 1)
        return read(state, now)
    except ScheduleError as error:  # 30 February
        raise NotWritten(str(error)) from None
    except NotRead as error:
        raise NotWritten(f"{error} in a trigger") from None
    except KeyError as error:
        raise NotWritten(f"a trigger without {error}") from None


def read_only_child(child: Known, jitter: Any, now: datetime, depth: int) -> Plan:
    """Return the columns of a combination of one trigger, with the random delay of the combination. Raises NotWritten.

    A trigger may contain itself.
    """
    if depth > DEEPEST:
        raise NotWritten("combinations that are nested too deeply")
    plan = read_trigger(child, now, depth)
    if jitter and "jitter" in plan.columns:
        raise NotWritten("a combination of triggers with random delays of their own")
    add_jitter(plan, jitter, adds_up=str(plan.columns.get("schedule")).startswith("@every"))
    return plan


def read_cron(state: dict[str, Any], now: datetime) -> Plan:
    """Return the columns of a cron trigger."""
    return plan_walls(read_walls(state), CRON, now)


def read_walls(state: dict[str, Any]) -> Walls:
    """Return the wall clocks of a cron trigger. Raises NotWritten, NotRead."""
    start, end = read_datetime(state.get("start_date")), read_datetime(state.get("end_date"))
    return Walls(read_fields(state["fields"]), read_zone(state["timezone"]), start, end, state.get("jitter"))


def plan_walls(walls: Walls, rule: Rule, now: datetime) -> Plan:
    """Return the columns of wall clocks. Raises NotWritten."""
    plan = Plan({})
    choice = choose_spelling(walls.cron.fields, walls.timezone, rule, now) if walls.cron.fields.minutes else None
    if choice is None:
        raise NotWritten("days of the month and days of the week that must both match")
    check_schedule(choice.expression, walls.timezone)
    add_choice(plan.columns, plan.remarks, choice, walls.timezone)
    start, end = limit_to_years(walls)
    if start is not None and start > now:
        plan.columns["starts_at"] = start
    if end is not None:
        plan.columns["ends_at"] = end
    add_jitter(plan, walls.jitter)
    return plan


def check_schedule(expression: str, timezone: str) -> None:
    """Raise NotWritten for a schedule that pgsched refuses, as one that never fires."""
    try:
        parse(expression, timezone)
    except ScheduleError as error:
        raise NotWritten(str(error)) from None


def limit_to_years(walls: Walls) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last instant at which slots are, of the trigger and of its years. Raises NotWritten."""
    years = walls.cron.years
    if years is None:
        return walls.start, walls.end
    if not years or len(years) != max(years) - min(years) + 1:
        raise NotWritten("years that are not one after the other")
    tz = zones.zone(walls.timezone)
    first = zones.midnight(tz, date(min(years), 1, 1))
    start = max(first, walls.start) if walls.start else first
    if max(years) >= 9998:
        return start, walls.end
    last = zones.midnight(tz, date(max(years) + 1, 1, 1)) - SECOND
    return start, min(last, walls.end) if walls.end else last


def add_jitter(plan: Plan, jitter: Any, *, adds_up: bool = False) -> None:
    """Add the random delay of a trigger, in seconds, if it has one. Raises NotWritten."""
    if not jitter:
        return
    if not isinstance(jitter, int | float) or not 0 < jitter < 86_400:
        raise NotWritten("a jitter that is no number of seconds, negative, or a day or more")
    plan.columns["jitter"] = timedelta(seconds=jitter)
    reason = Reason.JITTER_ADDS_UP if adds_up else Reason.JITTER
    plan.remarks.append(Remark(reason, f"jitter={jitter:g}", "jitter"))


def read_interval(state: dict[str, Any], now: datetime) -> Plan:
    """Return the columns of an interval trigger: `starts_at` is what it counts from."""
    plan = Plan({"schedule": every(read_timedelta(state["interval"])), "starts_at": read_datetime(state["start_date"])})
    end = read_datetime(state.get("end_date"))
    if end is not None:
        plan.columns["ends_at"] = end
    if plan.columns["schedule"] is None:
        raise NotWritten(f"an interval of {read_timedelta(state['interval'])}, which is no number of seconds")
    check_schedule(plan.columns["schedule"], "UTC")
    add_jitter(plan, state.get("jitter"), adds_up=True)
    return plan


def read_run_date(state: dict[str, Any], now: datetime) -> Plan:
    """Return the columns of a date trigger: a job that runs once."""
    at = read_datetime(state["run_date"])
    if at is None:
        raise NotWritten("a date trigger without a date")
    return Plan({"run_at": at})


def read_or(state: dict[str, Any], now: datetime) -> Plan:
    """Return the columns of an `or` of cron triggers: their expressions with `;` between."""
    walls = [read_child_walls(child) for child in read_children(state)]
    if len({(one.timezone, one.start, one.end, one.cron.years) for one in walls}) > 1:
        raise NotWritten("an `or` of triggers with different zones, starts or ends")
    plans = [plan_walls(replace(one, jitter=None), CRON, now) for one in walls]
    joined = Plan(
        {**plans[0].columns, "schedule": "; ".join(dict.fromkeys(plan.columns["schedule"] for plan in plans))},
        [remark for plan in plans for remark in plan.remarks],
    )
    check_schedule(joined.columns["schedule"], walls[0].timezone)
    add_jitter(joined, common_jitter(state, walls))
    return joined


def read_and(state: dict[str, Any], now: datetime) -> Plan:
    """Return the columns of an `and` of cron triggers: the wall clocks that all of them name."""
    walls = [read_child_walls(child) for child in read_children(state)]
    if len({one.timezone for one in walls}) > 1:
        raise NotWritten("an `and` of triggers in different zones")
    met = replace(walls[0], jitter=common_jitter(state, walls))
    for other in walls[1:]:
        met = replace(met, cron=intersect(met.cron, other.cron), start=later(met.start, other.start, max),
                      end=later(met.end, other.end, min))  # fmt: skip
    return plan_walls(met, CRON, now)


def read_children(state: dict[str, Any]) -> list[Known]:
    """Return the triggers that an `and` or `or` combines: pairs of a class and its state. Raises NotWritten."""
    match state["triggers"]:
        case [_, *_] as pairs if len(pairs) <= 20:
            return [read_child(pair) for pair in pairs]
    raise NotWritten("a combination of no trigger, or of more than 20")


def read_child(pair: Any) -> Known:
    """Return one of the combined triggers. Raises NotWritten."""
    match pair:
        case [str(reference), dict(state)] if (name := reference.replace(":", ".")) in CLASSES:
            return Known(name, (), state)
        case [str(reference), *_]:
            raise NotWritten(f"the trigger {reference[:100]}, which is none of APScheduler's own")
    raise NotWritten("a damaged combination of triggers")


def read_child_walls(child: Known) -> Walls:
    """Return the wall clocks of a combined trigger. Raises NotWritten, NotRead."""
    if not child.name.endswith(".CronTrigger"):
        raise NotWritten(f"a combination with {child.name.rpartition('.')[2]}")
    return read_walls(child.state)


def common_jitter(state: dict[str, Any], walls: list[Walls]) -> Any:
    """Return the random delay of a combination. Raises NotWritten where its triggers have their own."""
    if any(one.jitter for one in walls):
        raise NotWritten("a combination of triggers with random delays of their own")
    return state.get("jitter")


def later(one: datetime | None, other: datetime | None, choose: Callable[..., datetime]) -> datetime | None:
    """Return the instant that counts of two, of which each may be missing."""
    return choose(one, other) if one and other else one or other


def intersect(one: Cron, other: Cron) -> Cron:
    """Return the wall clocks that both name. Raises NotWritten."""
    a, b = one.fields, other.fields
    days = intersect_days(a, b)
    years = one.years & other.years if one.years and other.years else one.years or other.years
    met = replace(days, seconds=a.seconds & b.seconds, minutes=a.minutes & b.minutes, hours=a.hours & b.hours,
                  months=a.months & b.months)  # fmt: skip
    if not (met.seconds and met.minutes and met.hours and met.months):
        raise NotWritten("an `and` of triggers that never agree")
    return Cron(met, years)


def intersect_days(a: Fields, b: Fields) -> Fields:
    """Return fields with the days that both name. Raises NotWritten."""
    for one, other in ((a, b), (b, a)):
        if not (one.nth or one.last_day) and len(one.days) == 31 and len(one.weekdays) == 7:
            return other
    if a.nth or a.last_day or b.nth or b.last_day:
        raise NotWritten("an `and` of triggers of which one has `last` or a numbered weekday")
    return replace(a, days=a.days & b.days, weekdays=a.weekdays & b.weekdays)


def read_calendar_interval(state: dict[str, Any], now: datetime) -> Plan:
    """Return the columns of a calendar interval that a cron expression can name: each day, week, year, or n months."""
    start = read_date(state["start_date"])
    clock = state["time"]
    if not is_whole(clock, 3) or not (clock[0] in range(24) and {clock[1], clock[2]} <= {*range(60)}):
        raise NotWritten("a damaged time of the day")
    if not is_whole(state["interval"], 4):
        raise NotWritten("a damaged interval")
    hour, minute, second = clock
    fields = Fields(frozenset({minute}), frozenset({hour}), seconds=frozenset({second}))
    match state["interval"]:
        case [0, 0, 0, 1]:
            pass
        case [0, 0, 1, 0] | [0, 0, 0, 7]:
            fields = replace(fields, weekdays=frozenset({start.isoweekday() % 7}))
        case [0, (1 | 2 | 3 | 4 | 6) as months, 0, 0]:
            met = frozenset((start.month - 1 + months * n) % 12 + 1 for n in range(12))
            fields = replace(fields, days=frozenset({start.day}), months=met)
        case [1, 0, 0, 0] | [0, 12, 0, 0]:
            fields = replace(fields, days=frozenset({start.day}), months=frozenset({start.month}))
        case _:
            raise NotWritten("a calendar interval other than each day, week, year, or 1, 2, 3, 4 or 6 months")
    timezone = read_zone(state["timezone"])
    tz = zones.zone(timezone)
    end = None if state.get("end_date") is None else read_date(state["end_date"])
    last = None if end is None else zones.midnight(tz, end + timedelta(days=1)) - SECOND
    walls = Walls(Cron(fields, None), timezone, zones.midnight(tz, start), last, state.get("jitter"))
    return plan_walls(walls, CALENDAR_INTERVAL, now)


def is_whole(value: Any, length: int) -> bool:
    """Check whether a value is a list of so many whole numbers."""
    return isinstance(value, list | tuple) and len(value) == length and all(type(one) is int for one in value)


COMBINATIONS = ("AndTrigger", "OrTrigger")
READERS: dict[str, Callable[[dict[str, Any], datetime], Plan]] = {
    "CronTrigger": read_cron,
    "IntervalTrigger": read_interval,
    "DateTrigger": read_run_date,
    "OrTrigger": read_or,
    "AndTrigger": read_and,
    "CalendarIntervalTrigger": read_calendar_interval,
}
