"""Choose the spelling of a schedule that does what its source does where clocks change.

Invariant: a choice without a difference has the source's slots around every clock change of the next YEARS years.

Elsewhere all spellings have the slots that the wall clocks name. Where clocks change, sources differ, and so do our
spellings (pgsched.core.schedule.cron). A schedule whose second, minute or hour begins with `*` has the wall clocks that
exist, as often as they come. Another one has each wall clock once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.core.schedule import zones
from pgsched.core.schedule.base import SECOND, Schedule
from pgsched.core.schedule.cron import parse
from pgsched.importers.imported import Reason, Remark
from pgsched.importers.schedules.fields import Fields, write_spellings

YEARS = 2
AROUND = timedelta(hours=4)  # more than clocks are put forward or back, and a run on each side


@dataclass(frozen=True, slots=True)
class Rule:
    """What a source does where clocks change.

    `shifts`: a wall clock in a gap runs as long after the gap's begin as it names. Otherwise it has no run.
    `repeats`: a wall clock that comes twice runs twice. Otherwise it runs in the first pass.
    """

    shifts: bool
    repeats: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """An expression.

    `usual`: how people would write it.
    `differs`: where its slots are not the source's, `on 2027-03-28 there at 03:30, here at 03:00`; None if nowhere.
    """

    expression: str
    usual: str
    differs: str | None = None

    @property
    def kept(self) -> bool:
        """Whether it is written in another way for the sake of clock changes."""
        return self.differs is None and self.expression != self.usual


def add_choice(columns: dict[str, Any], remarks: list[Remark], choice: Choice, timezone: str) -> None:
    """Add an expression and its zone to the columns of a job, and what is to be said about clock changes."""
    columns["schedule"] = choice.expression
    if timezone != "UTC":
        columns["timezone"] = timezone
    if choice.differs:
        remarks.append(Remark(Reason.CLOCK_CHANGE, choice.differs, "schedule"))
    elif choice.kept:
        remarks.append(Remark(Reason.CLOCK_CHANGE_KEPT, f"else it would be {choice.usual}", "schedule"))


def choose_spelling(fields: Fields, timezone: str, rule: Rule, now: datetime) -> Choice | None:
    """Return the expression that is nearest to the source; None where no expression means these days.

    A `;` separates two expressions of which one is in force.
    """
    spellings = write_spellings(fields)
    return _choose(tuple(spellings), timezone, rule, now.date()) if spellings else None


@lru_cache(maxsize=4096)
def _choose(spellings: tuple[str, ...], timezone: str, rule: Rule, today: date) -> Choice:
    tz = zones.zone(timezone)
    usual = spellings[0]
    now = datetime.combine(today, time(), UTC)
    changes = find_changes(timezone, now)
    if not changes:
        return Choice(usual, usual)
    wanted = [list(slots_of_source(parse(_one_second(usual)), tz, rule, at)) for at in changes]
    joined = [f"{spellings[-2]}; {spellings[-1]}"] if len(spellings) > 1 else []
    found = []
    for expression in (*spellings, *joined):
        got = [list(slots_of_ours(expression, timezone, at)) for at in changes]
        if got == wanted:
            return Choice(expression, usual)
        wrong = [(w, g) for w, g in zip(wanted, got, strict=True) if w != g]
        found.append((sum(len({*w} ^ {*g}) for w, g in wrong), expression, wrong[0]))
    _, expression, (theirs, ours) = min(found, key=lambda one: one[0])
    return Choice(expression, usual, describe_difference(theirs, ours, tz))


@lru_cache(maxsize=256)
def find_changes(timezone: str, now: datetime) -> tuple[datetime, ...]:
    """Return the instants of the next YEARS years at which clocks of a zone change."""
    end = now + timedelta(days=366 * YEARS)
    return tuple(change.at for change in zones.changes(zones.zone(timezone), now, end))


def slots_of_source(walls: Schedule, tz: ZoneInfo, rule: Rule, change: datetime) -> Iterator[datetime]:
    """Yield the slots of the source around a clock change. `walls`: its wall clocks, as slots in UTC."""
    slot = next_of_source(walls, tz, rule, change - AROUND)
    while slot is not None and slot <= change + AROUND:
        yield slot
        slot = next_of_source(walls, tz, rule, slot)


def next_of_source(walls: Schedule, tz: ZoneInfo, rule: Rule, instant: datetime) -> datetime | None:
    """Return the slot that follows an instant by the source's rule; None if there is none."""
    naive = zones.wall_clock_at(tz, instant)
    change = zones.change_at(tz, naive)
    if change is not None and rule.repeats:
        passes = [(naive, naive.fold)] if naive.fold else [(naive, 0), (change.after - SECOND, 1)]
        for since, fold in passes:
            found = _next_wall(walls, since)
            if found is not None and found < change.before:
                return zones.instant_of(found, zones.offset(tz, found, fold))
    found = _next_wall(walls, naive)
    while found is not None:
        gap = zones.change_at(tz, found)
        if rule.shifts or gap is None or gap.after < gap.before:
            return zones.instant_of(found, zones.offset(tz, found, 0))
        found = _next_wall(walls, gap.after - SECOND)
    return None


def _next_wall(walls: Schedule, naive: datetime) -> datetime | None:
    found = walls.after(naive.replace(tzinfo=UTC, fold=0))
    return None if found is None else found.replace(tzinfo=None)


def slots_of_ours(expression: str, timezone: str, change: datetime) -> Iterator[datetime]:
    """Yield the slots of an expression around a clock change; of `a; b` those of both, each once."""
    whole = "; ".join(map(_one_second, expression.split(";")))
    return parse(whole, timezone).between(change - AROUND, change + AROUND)


def _one_second(expression: str) -> str:
    """Return the expression with the first of its seconds only: clocks change by whole minutes."""
    words = expression.split()
    if len(words) == 5:
        return " ".join(words)
    first = words[0]
    one = "*/60" if first.startswith("*") else first.split(",")[0].split("-")[0]
    return " ".join([one, *words[1:]])


def describe_difference(theirs: list[datetime], ours: list[datetime], tz: ZoneInfo) -> str:
    """Return what differs around one clock change: `on 2027-03-28 there at 03:30, here at 03:00`."""
    missing, more = sorted({*theirs} - {*ours}), sorted({*ours} - {*theirs})
    day = min([*missing, *more]).astimezone(tz).date()
    return f"on {day} there {_describe_times(missing, tz)}, here {_describe_times(more, tz)}"


def _describe_times(instants: list[datetime], tz: ZoneInfo) -> str:
    if not instants:
        return "not"
    times = [f"{instant.astimezone(tz):%H:%M %Z}" for instant in instants[:3]]
    return f"at {', '.join(times)}{' ...' if len(instants) > 3 else ''}"
