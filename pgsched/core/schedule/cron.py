"""The rule: the next slot is a pure function of expression, zone and instant, and always strictly after that instant.

croniter finds days with L, W or #, on naive dates and from canonical text only; all else is plain numbers, and this
module decides what a wall clock means in a zone.
A *wildcard* schedule runs at every real instant whose wall clock matches. A *fixed* one runs once for every wall clock
it names: in the first pass of a repeated hour, and at the first instant after a gap for all it names inside the gap.
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
from pgsched.core.schedule.base import SECOND, After, Every, Schedule, utc
from pgsched.core.schedule.plain_days import DAY, LAST, PlainDays, plain
from pgsched.errors import ScheduleError

__all__ = ["Schedule", "parse"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Whether a schedule fires at all is asked from here, so that the answer does not change from day to day. No pattern of
# days is further apart than 40 years (29 February on a given weekday, across 2100), and the engine looks 50 ahead.
REFERENCE = datetime(2024, 1, 1)
YEARS = 50
GAPS_IN_A_ROW = 50
# Counting looks at each day once for each alternative, about 50 us: no call is to take longer than 50 ms.
DAYS_COUNTED = 200


class _OddDays:
    """Days with L, W or # in them, and the last answer: what is rare is searched for through many years."""

    __slots__ = ("_croniter", "_known")

    def __init__(self, months: str, days: tuple[str, str], years: int) -> None:
        self._croniter = _croniter(months, days, years)
        self._known = (datetime.max, datetime.min)

    def first(self, day: datetime) -> datetime | None:
        """The first day that is not before this one."""
        since, found = self._known
        if since <= day <= found:
            return found
        # A copy, because the engine keeps its position and schedules are shared between threads.
        with suppress(CroniterBadDateError, OverflowError, ValueError):
            later: datetime = copy.copy(self._croniter).get_next(datetime, start_time=day - SECOND)
            self._known = (day, later)
            return later
        return None


class _Walls:
    """The naive wall clocks that a cron expression names: times of the day, on the days of each alternative."""

    __slots__ = ("_days", "_first", "_numbers")

    def __init__(self, cron: grammar.Cron) -> None:
        # An alternative without any day (31 February) would make every search run to the engine's horizon.
        self._days = [_days(cron.months, days, YEARS) for days in cron.days if _fires(cron.months, days)]
        if not self._days:
            raise ScheduleError("schedule", "never fires: no month has such a day")
        self._numbers = [sorted(numbers) for numbers in (cron.hours, cron.minutes, cron.seconds)]
        self._first = time(min(cron.hours), min(cron.minutes), min(cron.seconds))

    def after(self, naive: datetime) -> datetime | None:
        """The first one after a wall clock of whole seconds."""
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
        """How many lie in (start, end]: whole days times the slots of a day, without walking through them."""
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
        """How many of a matching day lie at or before this time of day."""
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
    wildcard: bool
    walls: _Walls = field(compare=False, repr=False)
    tz: ZoneInfo = field(compare=False, repr=False)

    def after(self, instant: datetime) -> datetime | None:
        try:
            now = utc(instant).replace(microsecond=0)
            return self._wildcard_after(now) if self.wildcard else self._fixed_after(now)
        except OverflowError:
            return None

    def _fixed_after(self, now: datetime) -> datetime | None:
        naive = self.walls.after(self._reached(now))
        if naive is None:
            return None
        change = zones.change_at(self.tz, naive)
        if change is not None and change.after > change.before:
            return change.at
        return zones.instant_of(naive, zones.offset(self.tz, naive, 0))

    def _reached(self, now: datetime) -> datetime:
        """The latest wall clock whose fixed slot is not after `now`: a second pass has none left until it ends."""
        naive = zones.wall(self.tz, now)
        change = zones.change_at(self.tz, naive) if naive.fold else None
        return change.before - SECOND if change else naive

    def _wildcard_after(self, now: datetime) -> datetime | None:
        naive = zones.wall(self.tz, now)
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

    def count(self, start: datetime, end: datetime) -> int | None:
        start, end = utc(start).replace(microsecond=0), utc(end).replace(microsecond=0)
        if end - start > timedelta(days=DAYS_COUNTED):
            return None
        if start >= end:
            return 0
        return self._wildcard_count(start, end) if self.wildcard else self._fixed_count(start, end)

    def _wildcard_count(self, start: datetime, end: datetime) -> int:
        found, since = 0, zones.wall(self.tz, start)
        for change in zones.changes(self.tz, start, end):
            found += self.walls.count(since, change.before - SECOND)
            since = change.after - SECOND
        return found + self.walls.count(since, zones.wall(self.tz, end))

    def _fixed_count(self, start: datetime, end: datetime) -> int:
        found = self.walls.count(self._reached(start), self._reached(end))
        for change in zones.changes(self.tz, start, end):
            skipped = self.walls.count(change.before - SECOND, change.after - SECOND)
            if skipped:
                named = self.walls.count(change.after - SECOND, change.after)
                found += 1 - named - skipped
        return found


def parse(expression: str, timezone: str = "UTC", anchor: datetime | None = None) -> Schedule:
    """The schedule of an expression, or ScheduleError. Only `@every` has an anchor: its slots are counted from it."""
    schedule = _parse(expression, timezone)
    if anchor is None or not isinstance(schedule, Every):
        return schedule
    return Every(expression, timezone, utc(anchor), schedule.interval)


@lru_cache(maxsize=4096)
def _parse(expression: str, timezone: str) -> Schedule:
    read = grammar.read(expression)
    tz = zones.zone(timezone)
    if isinstance(read, grammar.Cron):
        schedule = _Cron(expression, timezone, read.wildcard, _Walls(read), tz)
        if read.wildcard and read.days != (("*", "*"),) and schedule.after(REFERENCE.replace(tzinfo=UTC)) is None:
            raise ScheduleError("schedule", f"never fires: {timezone} skips every such time")
        return schedule
    if read.repeats:
        return Every(expression, timezone, EPOCH, read.length)
    return After(expression, timezone, read.length)


def _croniter(months: str, days: tuple[str, str], years: int) -> croniter:
    day, weekday = days
    nearest = [int(item[:-1]) for item in day.split(",") if item.endswith("w")]
    # day_or=False: each alternative is one pair of day fields that must both hold. The engine's own day rule is not
    # asked, since it ANDs W and # forms in every case.
    engine = croniter(
        f"0 0 0 {f'{nearest[0]}w' if nearest else day} {months} {weekday}",
        EPOCH.replace(tzinfo=None),
        ret_type=datetime,
        day_or=False,
        implement_cron_bug=True,
        second_at_beginning=True,
        max_years_between_matches=years,
    )
    # Its parser takes one W, its search any number; an engine for each W would cost 31 searches for a long list.
    engine.nearest_weekday.update(nearest)
    return engine


@lru_cache(maxsize=1024)
def _days(months: str, days: tuple[str, str], years: int) -> PlainDays | _OddDays:
    return (PlainDays if plain(days) else _OddDays)(months, days, years)


@lru_cache(maxsize=1024)
def _fires(months: str, days: tuple[str, str]) -> bool:
    # The 28 years from 2024 begin on every weekday, leap years included: what fails in them fails for ever.
    return _in_every_month(*days) or _days(months, days, 28).first(REFERENCE) is not None


def _in_every_month(day: str, weekday: str) -> bool:
    """Whether each month is sure to have such a day, which spares a search."""
    if weekday == "*":
        return day == "*" or any(item == "l" or item.endswith("w") or int(item) <= 28 for item in day.split(","))
    return day == "*" and any(not item.endswith("#5") for item in weekday.split(","))


def _first(alternatives: Sequence[PlainDays | _OddDays], day: datetime) -> datetime | None:
    if len(alternatives) == 1:
        return alternatives[0].first(day)
    return min(filter(None, (days.first(day) for days in alternatives)), default=None)


def _next(alternatives: Sequence[PlainDays | _OddDays], day: datetime) -> datetime | None:
    return _first(alternatives, day + DAY) if day <= LAST else None
