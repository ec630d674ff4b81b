"""The excluded times of a job, as stretches of real time: its own dates, and the times of the calendar that it names.

Invariant: a slot at an excluded time of its job does not run there. Times are those of the job's time zone.

A stretch of dates lasts from the first instant of its first date to the first instant after its last date, even where
clocks change at midnight. Other rules name weekdays or parts of days; an instant is excluded if its wall clock is.

Where two of them share an instant, it belongs to the first in this order: the job's own dates; whole days of the
calendar; its other rules. Dates go by their beginning, other rules as they come. `pgsched.excluded_at` in
migrations/1004_arrive has the same rules and the same words. Change both or neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.core.schedule import zones
from pgsched.core.schedule.wall_times import (
    WEEKDAYS,
    WHOLE_DAY_US,
    Rule,
    Window,
    describe_wall,
    on_day,
    parse_wall,
    since_midnight,
    windows_of,
)

# (first date, last date, reason)
Dates = tuple[date, date, str | None]
BEGINS = itemgetter(0)
DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)
LOOK = timedelta(days=400)  # how much excluded time of rules that repeat is passed in search of an allowed one
MOST_DAYS = 2000  # days whose windows a calendar remembers
FEW_REMEMBERED = 8  # days whose stretches it remembers: a tick asks for the same day again and again
FEW_DAYS = timedelta(days=31)  # rules of at most so many days are found by day, all others are read for each day


@dataclass(frozen=True, slots=True)
class Part:
    """The instants in (after, until], with the reason why nothing runs in them; None where slots may run."""

    after: datetime
    until: datetime
    excluded: str | None


@dataclass(frozen=True, slots=True)
class Calendar:
    """Excluded times.

    `stretches`: of dates, disjoint and in order: (begin, end, reason), without the end itself.
    `days`: the same as dates, each as (first, last, reason).
    `rules`: those that name weekdays or parts of days.
    `ending`: words that each reason ends with.
    `memory`: what others have computed of its days.
    """

    stretches: tuple[tuple[datetime, datetime, str], ...] = ()
    rules: tuple[Rule, ...] = ()
    days: tuple[tuple[date, date, str], ...] = field(default=(), compare=False)
    tz: ZoneInfo | None = field(default=None, compare=False)
    ending: str = ""
    memory: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    _windows: dict[date, tuple[Window, ...]] = field(default_factory=dict, compare=False, repr=False)
    _of_days: dict[date, list[tuple[datetime, datetime, str]]] = field(default_factory=dict, compare=False, repr=False)
    _found_by_day: dict[date | None, list[int]] = field(default_factory=dict, compare=False, repr=False)

    def excluded(self, instant: datetime) -> str | None:
        """Return why this instant is excluded; None if it is not."""
        at = bisect_right(self.stretches, instant, key=BEGINS) - 1
        if at >= 0 and instant < self.stretches[at][1]:
            return self.stretches[at][2] + self.ending
        window = self._window_at(instant)
        return None if window is None else window.reason + self.ending

    def next_allowed(self, instant: datetime) -> datetime:
        """Return the first instant, this one or later, that is not excluded.

        Where rules that repeat exclude LOOK and more, besides dates, return an instant beyond that.
        """
        left = LOOK
        while left > timedelta(0) and self.excluded(instant) is not None:
            at = bisect_right(self.stretches, instant, key=BEGINS) - 1
            if at >= 0 and instant < self.stretches[at][1]:
                instant = self.stretches[at][1]
                continue
            assert self.tz is not None
            day = zones.wall_clock_at(self.tz, instant).date()
            ends = next(ends for begins, ends, _ in self._of_day(day) if begins <= instant < ends)
            instant, left = ends, left - (ends - instant)
        return instant

    def parts(self, after: datetime, until: datetime) -> Iterator[Part]:
        """Yield (after, until] in parts, cut where an excluded stretch begins or ends, oldest first."""
        for begins, ends, reason in self._stretches(after, until):
            if begins - INSTANT > after:
                yield Part(after, begins - INSTANT, None)
                after = begins - INSTANT
            last = min(ends - INSTANT, until)
            yield Part(after, last, reason + self.ending)
            after = last
        if after < until:
            yield Part(after, until, None)

    def windows(self, day: date) -> tuple[Window, ...]:
        """Return the excluded parts of a day as wall clocks, in order."""
        found = self._windows.get(day)
        if found is None:
            at = bisect_right(self.days, day, key=lambda dates: dates[0]) - 1
            whole = at >= 0 and day <= self.days[at][1]
            found = (Window(0, WHOLE_DAY_US, self.days[at][2]),) if whole else windows_of(day, self._rules_near(day))
            if len(self._windows) >= MOST_DAYS:
                self._windows.clear()
            self._windows[day] = found
        return found

    def _stretches(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime, str]]:
        """Yield the excluded stretches that touch (after, until], oldest first. Neighbours have different reasons."""
        if not self.rules:
            at = max(bisect_right(self.stretches, after, key=BEGINS) - 1, 0)
            for stretch in self.stretches[at:]:
                if stretch[0] > until:
                    return
                if stretch[1] - INSTANT > after:
                    yield stretch
            return
        pending: tuple[datetime, datetime, str] | None = None
        for begins, ends, reason in self._pieces(after, until):
            if pending is not None and pending[1] == begins and pending[2] == reason:
                pending = (pending[0], ends, reason)
                continue
            if pending is not None:
                yield pending
            pending = (begins, ends, reason)
        if pending is not None:
            yield pending

    def _pieces(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime, str]]:
        """Yield the excluded stretches that touch (after, until], day by day."""
        assert self.tz is not None
        day, last = (zones.wall_clock_at(self.tz, instant).date() for instant in (after, until))
        while day <= last:
            for begins, ends, reason in self._of_day(day):
                if ends - INSTANT > after and begins <= until:
                    yield begins, ends, reason
            day += DAY

    def _of_day(self, day: date) -> Sequence[tuple[datetime, datetime, str]]:
        """Return the excluded stretches of a day, in the order of time."""
        assert self.tz is not None
        found = self._of_days.get(day)
        if found is None:
            found = sorted(
                (begins, ends, window.reason)
                for window in self.windows(day)
                for begins, ends in zones.instants_between(
                    self.tz, on_day(day, window.begins), on_day(day, window.ends)
                )
            )  # fmt: skip
            if len(self._of_days) >= FEW_REMEMBERED:
                self._of_days.clear()
            self._of_days[day] = found
        return found

    def _window_at(self, instant: datetime) -> Window | None:
        """Return the window of a rule in which an instant lies."""
        if not self.rules or self.tz is None:
            return None
        naive = zones.wall_clock_at(self.tz, instant)
        wall, windows = since_midnight(naive), self.windows(naive.date())
        at = bisect_right(windows, wall, key=attrgetter("begins")) - 1
        return windows[at] if at >= 0 and wall < windows[at].ends else None

    def _rules_near(self, day: date) -> Iterator[Rule]:
        """Yield the rules that may hold on a day, in their order."""
        if not self._found_by_day:
            found: dict[date | None, list[int]] = {None: []}
            for number, rule in enumerate(self.rules):
                short = rule.first is not None and rule.last is not None and rule.last - rule.first <= FEW_DAYS
                for one in _each_day(rule.first, rule.last) if short else (None,):
                    found.setdefault(one, []).append(number)
            self._found_by_day.update(found)
        numbers = sorted([*self._found_by_day.get(None, ()), *self._found_by_day.get(day, ())])
        return (self.rules[number] for number in numbers)


def _each_day(first: date | None, last: date | None) -> Iterator[date]:
    while first is not None and last is not None and first <= last:
        yield first
        first += DAY


OPEN = Calendar()


class ReadRows(tuple[tuple[Any, ...], ...]):
    """Rows as `calendar` keeps them: tuples, with dates. Their hash is computed once, however many jobs share them."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


def read_rows(rows: Iterable[Iterable[Any]]) -> ReadRows:
    """Return rows in the form in which `calendar` finds them fastest."""
    return rows if isinstance(rows, ReadRows) else ReadRows(map(_row, rows))


def calendar(rows: Iterable[Iterable[Any]] | None, timezone: str, ending: str = "") -> Calendar:
    """Return the calendar of a job's rows; dates may be ISO texts.

    `rows`: dates of the job as (first date, last date, reason), and times of a calendar as (its name, first date,
    last date, weekdays, from time, until time, reason)
    `ending`: words that each reason ends with
    """
    found = _calendar(read_rows(rows), timezone) if rows else OPEN
    return replace(found, ending=ending) if ending and found is not OPEN else found


@lru_cache(maxsize=1024)
def _calendar(rows: ReadRows, timezone: str) -> Calendar:
    """Return the calendar of these rows; calendars with equal rows are built once."""
    tz = zones.zone(timezone)
    days, rules = _days_and_rules(rows)
    stretches: list[tuple[datetime, datetime, str]] = []
    for first, last, reason in days:
        begins, ends = zones.midnight(tz, first), zones.midnight(tz, last + DAY)
        if begins < ends:
            stretches.append((begins, ends, reason))
    return Calendar(tuple(stretches), rules, days, tz)


@lru_cache(maxsize=256)
def _days_and_rules(rows: ReadRows) -> tuple[tuple[tuple[date, date, str], ...], tuple[Rule, ...]]:
    """Return the whole days and the rules of these rows, which calendars of all time zones share."""
    own = [(first, last, describe_dates(first, last, reason)) for first, last, reason in
           sorted((row for row in rows if len(row) == 3), key=lambda row: row[:2])]  # fmt: skip
    shared = [row for row in rows if len(row) != 3]
    whole = sorted((row for row in shared if is_whole_days(row)), key=lambda row: row[1:3])
    days = _merge(_disjoint(own), _disjoint((row[1], row[2], describe_times(*row)) for row in whole))
    rules = tuple(
        Rule(row[1], row[2], None if row[3] is None else frozenset(row[3]), parse_wall(row[4], 0),
             parse_wall(row[5], WHOLE_DAY_US), describe_times(*row))
        for row in shared if not is_whole_days(row)
    )  # fmt: skip
    return tuple(days), rules


def is_whole_days(row: Sequence[Any]) -> bool:
    """Check whether a row of a shared calendar names dates, and neither weekdays nor times."""
    return row[1] is not None and row[3] is None and row[4] is None


def _disjoint(dates: Iterable[tuple[date, date, str]]) -> list[tuple[date, date, str]]:
    """Return sorted dates without overlaps: a date belongs to the entry that begins first."""
    found: list[tuple[date, date, str]] = []
    for first, last, reason in dates:
        begin = max(first, found[-1][1] + DAY) if found else first
        if begin <= last:
            found.append((begin, last, reason))
    return found


def _merge(own: list[tuple[date, date, str]], shared: list[tuple[date, date, str]]) -> list[tuple[date, date, str]]:
    """Return both in order, without the dates of `shared` that are in `own`."""
    return sorted([*own, *_without(shared, own)])


def _without(dates: list[tuple[date, date, str]], others: list[tuple[date, date, str]]) -> list[tuple[date, date, str]]:
    """Return the dates that are not in `others`; both are disjoint and in order."""
    found: list[tuple[date, date, str]] = []
    for first, last, reason in dates:
        since = first
        for begin, end, _ in others[max(bisect_right(others, first, key=BEGINS) - 1, 0) :]:
            if begin > last:
                break
            if begin > since:
                found.append((since, begin - DAY, reason))
            since = max(since, end + DAY)
        if since <= last:
            found.append((since, last, reason))
    return found


def describe_dates(first: date, last: date, reason: str | None) -> str:
    """Describe an excluded date: `excluded date 2026-12-25: Christmas`."""
    dates = f"excluded date {first}" if first == last else f"excluded dates {first} to {last}"
    return f"{dates}: {reason}" if reason else dates


def describe_times(
    name: str, first: date | None, last: date | None, weekdays: Iterable[int] | None, begins: Any, ends: Any,
    reason: str | None,
) -> str:  # fmt: skip
    """Describe a time of a shared calendar: `excluded by calendar office: Sat, Sun 18:00-24:00 (closed)`."""
    words = []
    if first is not None:
        words.append(f"{first}" if first == last else f"{first} to {last}")
    if weekdays is not None:
        words.append(", ".join(WEEKDAYS[day] for day in sorted(set(weekdays))))
    if begins is not None:
        words.append(f"{describe_wall(parse_wall(begins, 0))}-{describe_wall(parse_wall(ends, 0))}")
    return f"excluded by calendar {name}: {' '.join(words)}" + (f" ({reason})" if reason else "")


def _row(row: Iterable[Any]) -> tuple[Any, ...]:
    """Return a row as a value that can be a key."""
    values = tuple(row)
    if len(values) == 3:
        first, last, reason = values
        return _date(first), _date(last), reason
    name, first, last, weekdays, begins, ends, reason = values
    return (name, first and _date(first), last and _date(last), None if weekdays is None else tuple(weekdays), begins,
            ends, reason)  # fmt: skip


def _date(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)
