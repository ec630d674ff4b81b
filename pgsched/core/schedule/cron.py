"""Compute the slots of cron expressions in a time zone, and parse expressions of every kind.

Invariant: the next slot depends only on expression, zone and instant, and lies strictly after that instant.

croniter only finds days with L, W or #, for naive dates and from canonical text. Everything else is computed from plain
numbers. This module decides what a wall clock means in a zone:

- A *wildcard* schedule runs at every real instant whose wall clock matches.
- A *fixed* schedule runs once for every wall clock that it names. In a repeated hour it runs in the first pass. All
  wall clocks inside a gap run once, at the first instant after the gap.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

from pgsched.core.schedule import grammar, zones
from pgsched.core.schedule.base import SECOND, After, Every, Schedule, to_utc
from pgsched.core.schedule.plain_days import DAY, LAST, PlainDays, is_plain
from pgsched.core.schedule.union import Union
from pgsched.errors import ScheduleError

__all__ = ["Schedule", "parse"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The search for a first slot starts here, so whether a schedule fires at all does not change from day to day. No
# pattern of days has gaps above 40 years (29 February on a given weekday, across 2100). The engine looks 50 ahead.
REFERENCE = datetime(2024, 1, 1)
YEARS = 50
GAPS_IN_A_ROW = 50
# Counting looks at each day once for each alternative, in about 50 us. No call may take longer than 50 ms.
DAYS_COUNTED = 200


class _OddDays:
    """Days with L, W or # in them. The last answer is cached, because a rare day is searched for through many years."""

    __slots__ = ("_croniter", "_known")

    def __init__(self, months: str, days: tuple[str, str], years: int) -> None:
        self._croniter = _croniter(months, days, years)
        self._known = (datetime.max, datetime.min)

    def first(self, day: datetime) -> datetime | None:
        """Return the first of these days that is not before `day`; None if there is none."""
        since, found = self._known
        if since <= day <= found:
            return found
        # A copy, because the engine stores its position, and threads share schedules.
        with suppress(CroniterBadDateError, OverflowError, ValueError):
            later: datetime = copy.copy(self._croniter).get_next(datetime, start_time=day - SECOND)
            self._known = (day, later)
            return later
        return None


class _Walls:
    """The naive wall clocks that a cron expression names: times of the day, on the days of each alternative."""

    __slots__ = ("_days", "_first", "_numbers")

    def __init__(self, cron: grammar.Cron) -> None:
        # Drop alternatives without any day (31 February): each search would run to the engine's limit.
        self._days = [_days(cron.months, days, YEARS) for days in cron.days if _fires(cron.months, days)]
        if not self._days:
            raise ScheduleError("schedule", "never fires: no month has such a day")
        self._numbers = [sorted(numbers) for numbers in (cron.hours, cron.minutes, cron.seconds)]
        self._first = time(min(cron.hours), min(cron.minutes), min(cron.seconds))

    def after(self, naive: datetime) -> datetime | None:
        """Return the first wall clock after another one, which has whole seconds."""
        midnight = datetime(naive.year, naive.month, naive.day)
        day = _first(self._days, midnight)
        if day == midnight:
            later = self._later_that_day(naive)
            if later is not None:
                return datetime.combine(midnight, later)
            day = _next(self._days, midnight)
        return None if day is None else datetime.combine(day, self._first)

    def _later_that_day(self, naive: datetime) -> time | None:
        hours, minutes, seconds = self._numbers
        if naive.hour in hours:
            if naive.minute in minutes and naive.second < seconds[-1]:
                return time(naive.hour, naive.minute, seconds[bisect_right(seconds, naive.second)])
            if naive.minute < minutes[-1]:
                return time(naive.hour, minutes[bisect_right(minutes, naive.minute)], seconds[0])
        if naive.hour < hours[-1]:
            return time(hours[bisect_right(hours, naive.hour)], minutes[0], seconds[0])
        return None

    def count(self, start: datetime, end: datetime) -> int:
        """Return how many wall clocks lie in (start, end].

        Whole days are counted by multiplication, not one wall clock at a time.
        """
        if start >= end:
            return 0
        hours, minutes, seconds = self._numbers
        midnight = start.replace(hour=0, minute=0, second=0)
        found, day = 0, _first(self._days, midnight)
        while day is not None and day <= end:
            found += self._until(end) if day.date() == end.date() else len(hours) * len(minutes) * len(seconds)
            found -= self._until(start) if day == midnight else 0
            day = _next(self._days, day)
        return found

    def _until(self, naive: datetime) -> int:
        """Return how many wall clocks of a matching day lie at or before this time of day."""
        hours, minutes, seconds = self._numbers
        h, m = bisect_right(hours, naive.hour), bisect_right(minutes, naive.minute)
        found = h * len(minutes) * len(seconds)
        if naive.hour in hours:
            found += (m - len(minutes)) * len(seconds)
            if naive.minute in minutes:
                found += bisect_right(seconds, naive.second) - len(seconds)
        return found


@dataclass(frozen=True, slots=True)
class _Cron(Schedule):
    """A cron expression in a time zone."""

    wildcard: bool
    walls: _Walls = field(compare=False, repr=False)
    tz: ZoneInfo = field(compare=False, repr=False)

    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after an instant, in UTC; None when there is none."""
        try:
            now = to_utc(instant).replace(microsecond=0)
            return self._wildcard_after(now) if self.wildcard else self._fixed_after(now)
        except OverflowError:
            return None

    def _fixed_after(self, now: datetime) -> datetime | None:
        """Return the first slot of a fixed schedule; wall clocks inside a gap run at its end."""
        naive = self.walls.after(self._last_wall_reached(now))
        return None if naive is None else zones.instant_at(self.tz, naive)

    def _last_wall_reached(self, now: datetime) -> datetime:
        """Return the latest wall clock whose fixed slot is not after `now`.

        In the second pass of a repeated hour, no fixed slot is left until that pass ends.
        """
        naive = zones.wall_clock_at(self.tz, now)
        change = zones.change_at(self.tz, naive) if naive.fold else None
        return change.before - SECOND if change else naive

    def _wildcard_after(self, now: datetime) -> datetime | None:
        """Return the first real instant whose wall clock matches; wall clocks inside a gap do not exist."""
        naive = zones.wall_clock_at(self.tz, now)
        change = zones.change_at(self.tz, naive)
        found = self.walls.after(naive)
        if change is not None and (found is None or found >= change.before) and not naive.fold:
            found = self.walls.after(change.after - SECOND)
            if found is not None and found < change.before:
                return zones.instant_of(found, zones.offset(self.tz, found, 1))
        if change is not None and naive.fold and found is not None and found < change.before:
            return zones.instant_of(found, zones.offset(self.tz, found, 1))
        for _ in range(GAPS_IN_A_ROW):
            gap = zones.change_at(self.tz, found) if found is not None else None
            if found is None or gap is None or gap.after < gap.before:
                break
            found = self.walls.after(gap.after - SECOND)
        else:
            return None
        return zones.instant_of(found, zones.offset(self.tz, found, 0)) if found else None

    def wall_clock(self, slot: datetime) -> datetime:
        """Return the wall clock that names a slot; of a slot at the end of a gap, the first one named in the gap."""
        naive = zones.wall_clock_at(self.tz, slot)
        if not self.wildcard and zones.wall_clock_at(self.tz, slot - SECOND) < naive - SECOND:
            change = next(zones.changes(self.tz, slot - SECOND, slot))
            named = self.walls.after(change.before - SECOND)
            return naive if named is None else min(named, naive)
        return naive

    def count(self, start: datetime, end: datetime) -> int | None:
        """Return how many slots lie in (start, end]; None beyond DAYS_COUNTED days."""
        start, end = to_utc(start).replace(microsecond=0), to_utc(end).replace(microsecond=0)
        if end - start > timedelta(days=DAYS_COUNTED):
            return None
        if start >= end:
            return 0
        return self._wildcard_count(start, end) if self.wildcard else self._fixed_count(start, end)

    def _wildcard_count(self, start: datetime, end: datetime) -> int:
        """Count the matching wall clocks of each period between two offset changes."""
        found, since = 0, zones.wall_clock_at(self.tz, start)
        for change in zones.changes(self.tz, start, end):
            found += self.walls.count(since, change.before - SECOND)
            since = change.after - SECOND
        return found + self.walls.count(since, zones.wall_clock_at(self.tz, end))

    def _fixed_count(self, start: datetime, end: datetime) -> int:
        """Count the named wall clocks; all wall clocks inside one gap count as one slot, at its end."""
        found = self.walls.count(self._last_wall_reached(start), self._last_wall_reached(end))
        for change in zones.changes(self.tz, start, end):
            skipped = self.walls.count(change.before - SECOND, change.after - SECOND)
            if skipped:
                named = self.walls.count(change.after - SECOND, change.after)
                found += 1 - named - skipped
        return found


def parse(expression: str, timezone: str = "UTC", anchor: datetime | None = None) -> Schedule:
    """Return the schedule of an expression. Raises ScheduleError.

    `anchor`: only for `@every`, whose slots are counted from it.
    """
    schedule = _parse(expression, timezone)
    if anchor is None or not isinstance(schedule, Every):
        return schedule
    return Every(expression, timezone, to_utc(anchor), schedule.interval)


@lru_cache(maxsize=4096)
def _parse(expression: str, timezone: str) -> Schedule:
    read = grammar.parse_expression(expression)
    tz = zones.zone(timezone)
    if isinstance(read, grammar.Several):
        return Union(expression, timezone, tuple(_member(text, timezone) for text, _ in read.parts))
    if isinstance(read, grammar.Cron):
        schedule = _Cron(expression, timezone, read.wildcard, _Walls(read), tz)
        if read.wildcard and read.days != (("*", "*"),) and schedule.after(REFERENCE.replace(tzinfo=UTC)) is None:
            raise ScheduleError("schedule", f"never fires: {timezone} skips every such time")
        return schedule
    if read.repeats:
        return Every(expression, timezone, EPOCH, read.length)
    return After(expression, timezone, read.length)


def _member(text: str, timezone: str) -> Schedule:
    """Return one of several expressions. The error names the expression that it is about."""
    try:
        return _parse(text, timezone)
    except ScheduleError as error:
        raise ScheduleError(str(error.field), f'{error.reason} (in "{text}")') from None


def _croniter(months: str, days: tuple[str, str], years: int) -> croniter:
    """Return croniter for one alternative of days; its times are midnights."""
    day, weekday = days
    nearest = [int(item[:-1]) for item in day.split(",") if item.endswith("w")]
    # day_or=False: each alternative is one pair of day fields that must both match. The engine's own rule for days is
    # not used, because it always ANDs forms with W and #.
    engine = croniter(
        f"0 0 0 {f'{nearest[0]}w' if nearest else day} {months} {weekday}",
        EPOCH.replace(tzinfo=None),
        ret_type=datetime,
        day_or=False,
        implement_cron_bug=True,
        second_at_beginning=True,
        max_years_between_matches=years,
    )
    # The parser accepts one W only, but the search any number. One engine for each W could mean 31 searches.
    engine.nearest_weekday.update(nearest)
    return engine


@lru_cache(maxsize=1024)
def _days(months: str, days: tuple[str, str], years: int) -> PlainDays | _OddDays:
    return (PlainDays if is_plain(days) else _OddDays)(months, days, years)


@lru_cache(maxsize=1024)
def _fires(months: str, days: tuple[str, str]) -> bool:
    """Check whether any day ever matches these day fields."""
    # In the 28 years from 2024, years begin on every weekday, leap years too: days missing in them never occur.
    return _in_every_month(*days) or _days(months, days, 28).first(REFERENCE) is not None


def _in_every_month(day: str, weekday: str) -> bool:
    """Check whether each month certainly has one of these days, which spares a search."""
    if weekday == "*":
        return day == "*" or any(item == "l" or item.endswith("w") or int(item) <= 28 for item in day.split(","))
    return day == "*" and any(not item.endswith("#5") for item in weekday.split(","))


def _first(alternatives: Sequence[PlainDays | _OddDays], day: datetime) -> datetime | None:
    if len(alternatives) == 1:
        return alternatives[0].first(day)
    return min(filter(None, (days.first(day) for days in alternatives)), default=None)


def _next(alternatives: Sequence[PlainDays | _OddDays], day: datetime) -> datetime | None:
    return _first(alternatives, day + DAY) if day <= LAST else None
