"""A second implementation of what a schedule means, from the design's words alone, slow and obvious.

Invariant: no code is shared with the product, not even its grammar. An expression is drawn together with its meaning:
sets of numbers, and a predicate on dates. Its slots are found by walking step by step through real time and the wall
clock.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from random import Random
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)
OnDay = Callable[[date], bool]
MONTH_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAY_NAMES = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


@dataclass(frozen=True)
class Meaning:
    """An expression, and what it means."""

    text: str
    seconds: set[int]
    minutes: set[int]
    hours: set[int]
    on_day: OnDay
    wildcard: bool
    six: bool


@dataclass(frozen=True)
class Column:
    """A field of an expression: values from `low` to `high` are drawn, those in `near` more often than others."""

    low: int
    high: int
    near: tuple[int, ...]
    names: tuple[str, ...] = ()


def draw(rng: Random, around: datetime, six: bool) -> Meaning:
    """Draw an expression that has slots near a wall-clock time more often than a random one would."""
    hours = tuple((around + timedelta(hours=n)).hour for n in (-2, -1, 0, 1, 2))
    days = [(around + n * DAY) for n in (-1, 0, 1)]
    second = numbers(rng, Column(0, 59, (0, 30, 59)))
    minute = numbers(rng, Column(0, 59, (0, 15, 30, 45, 59)))
    hour = numbers(rng, Column(0, 23, hours))
    month = (
        numbers(rng, Column(1, 12, (around.month,), ("", *MONTH_NAMES))) if rng.random() < 0.3 else ("*", all_of(1, 12))
    )
    day = month_days(rng, days) if rng.random() < 0.5 else ("*", lambda _: True)
    weekday = week_days(rng, days) if rng.random() < 0.5 else ("*", lambda _: True)
    both = "*" in (day[0][0], weekday[0][0])

    def on_day(d: date) -> bool:
        matched = (day[1](d), weekday[1](d))
        return d.month in month[1] and (all(matched) if both else any(matched))

    columns = [second, minute, hour] if six else [minute, hour]
    text = " ".join([*(column[0] for column in columns), day[0], month[0], weekday[0]])
    wildcard = any(column[0].startswith("*") for column in columns)
    return Meaning(text, second[1] if six else {0}, minute[1], hour[1], on_day, wildcard, six)


def all_of(low: int, high: int) -> set[int]:
    return {*range(low, high + 1)}


def numbers(rng: Random, column: Column) -> tuple[str, set[int]]:
    if rng.random() < 0.2:
        return "*", all_of(column.low, column.high)
    items = [item(rng, column) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return ",".join(text for text, _ in items), set[int]().union(*(values for _, values in items))


def item(rng: Random, column: Column) -> tuple[str, set[int]]:
    size = column.high - column.low + 1
    a, b = sorted((value(rng, column), value(rng, column)))
    step = rng.choice((2, 3, 5, 10, 15, 20, 30, rng.randint(1, size)))
    step = min(step, size)
    kind = rng.randrange(6)
    if kind == 0:
        return f"*/{step}", {n for n in all_of(column.low, column.high) if (n - column.low) % step == 0}
    if kind == 1:
        return f"{said(rng, column, a)}-{said(rng, column, b)}", all_of(a, b)
    if kind == 2:
        return f"{said(rng, column, a)}-{b}/{step}", {n for n in all_of(a, b) if (n - a) % step == 0}
    if kind == 3:
        return f"{a}/{step}", {n for n in all_of(a, column.high) if (n - a) % step == 0}
    return said(rng, column, a), {a}


def value(rng: Random, column: Column) -> int:
    return rng.choice(column.near) if rng.random() < 0.7 else rng.randint(column.low, column.high)


def said(rng: Random, column: Column, number: int) -> str:
    if column.names and rng.random() < 0.5:
        name = column.names[number]
        return rng.choice((name, name.upper(), name.title()))
    return rng.choice((str(number), f"{number:02}"))


def month_days(rng: Random, days: list[datetime]) -> tuple[str, OnDay]:
    items: list[tuple[str, OnDay]] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, n = rng.randrange(8), value(rng, Column(1, 31, tuple(day.day for day in days)))
        if kind == 0:
            items.append((rng.choice("Ll"), is_last))
        elif kind == 1:
            items.append((rng.choice(("LW", "lw")), lambda d: is_nearest(d, 31)))
        elif kind == 2:
            items.append((rng.choice((f"{n}W", f"{n}w", f"W{n}")), lambda d, n=n: is_nearest(d, n)))
        else:
            text, values = item(rng, Column(1, 31, tuple(day.day for day in days)))
            items.append((text, lambda d, values=values: d.day in values))
    return any_of(items)


def week_days(rng: Random, days: list[datetime]) -> tuple[str, OnDay]:
    column = Column(0, 6, tuple(day.isoweekday() % 7 for day in days), tuple(WEEKDAY_NAMES))
    items: list[tuple[str, OnDay]] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, w, n = rng.randrange(8), value(rng, column), rng.randint(1, 5)
        if kind == 0:
            items.append(
                (f"{said(rng, column, w)}#{n}", lambda d, w=w, n=n: is_weekday(d, {w}) and (d.day + 6) // 7 == n)
            )
        elif kind == 1:
            items.append(
                (f"{said(rng, column, w)}L", lambda d, w=w: is_weekday(d, {w}) and (d + 7 * DAY).month != d.month)
            )
        elif kind == 2:
            end = rng.choice(("7", "0", "sun", "SUN")) if w else "7"
            items.append((f"{said(rng, column, w)}-{end}", lambda d, w=w: is_weekday(d, {*range(w, 8)})))
        else:
            text, values = item(rng, column)
            items.append((text, lambda d, values=values: is_weekday(d, values)))
    return any_of(items)


def any_of(items: list[tuple[str, OnDay]]) -> tuple[str, OnDay]:
    return ",".join(text for text, _ in items), lambda d: any(on_day(d) for _, on_day in items)


def is_weekday(d: date, numbers: set[int]) -> bool:
    return d.isoweekday() in {number or 7 for number in numbers}


def is_last(d: date) -> bool:
    return (d + DAY).month != d.month


def is_nearest(d: date, n: int) -> bool:
    """Return whether d is the day from Monday to Friday that is nearest to day n of its month.

    If the month has no day n, the last day takes its place.
    """
    length = monthrange(d.year, d.month)[1]
    working = [m for m in range(1, length + 1) if date(d.year, d.month, m).isoweekday() < 6]
    return d.day == min(working, key=lambda m: abs(m - min(n, length)))


class Walk:
    """Real time in steps: what the wall clock shows at each step, and at which step it reaches each time."""

    def __init__(self, zone: ZoneInfo, start: datetime, steps: int, step: timedelta) -> None:
        self.instants = [start + n * step for n in range(steps)]
        self.shown = [wall(zone, instant) for instant in self.instants]
        # Each wall-clock time once: where the clock first shows it or, if the clock skips it, first passes it.
        self.passed: list[tuple[datetime, datetime]] = []
        reached = self.shown[0] - step
        for instant, shown in zip(self.instants, self.shown, strict=True):
            while reached < shown:
                reached += step
                self.passed.append((instant, reached))

    def slots(self, meaning: Meaning) -> list[datetime]:
        pairs = zip(self.instants, self.shown, strict=True) if meaning.wildcard else self.passed
        seconds, minutes, hours = meaning.seconds, meaning.minutes, meaning.hours
        days: dict[date, bool] = {}
        found = []
        for instant, w in pairs:
            if w.minute in minutes and w.hour in hours and w.second in seconds:
                day = w.date()
                if day not in days:
                    days[day] = meaning.on_day(day)
                if days[day] and (not found or found[-1] != instant):
                    found.append(instant)
        return found


def wall(zone: ZoneInfo, instant: datetime) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def load(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset_changes(zone: ZoneInfo, first: int, last: int) -> list[datetime]:
    """Return the first minute of each new UTC offset in these years, found by looking every three hours."""
    found, at = [], datetime(first, 1, 1, tzinfo=UTC)
    before = at.astimezone(zone).utcoffset()
    while at.year <= last:
        later = at + timedelta(hours=3)
        if (now := later.astimezone(zone).utcoffset()) != before:
            minutes = (at + timedelta(minutes=n) for n in range(1, 181))
            found.append(next(m for m in minutes if m.astimezone(zone).utcoffset() != before))
        at, before = later, now
    return found
