"""Parts of a day as wall clocks: unions, intersections and differences of stretches, and rules that name them.

A stretch is a pair (begin, end) without the end itself. Wall clocks are microseconds since midnight, so that they are
compared quickly. The functions work on instants as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from operator import attrgetter
from typing import Any, TypeVar

Point = TypeVar("Point", int, datetime)
WHOLE_DAY_US = 86_400_000_000
WHOLE_DAY = ((0, WHOLE_DAY_US),)
WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
MICROSECOND = timedelta(microseconds=1)
# Stretches of one day, disjoint and in order.
Walls = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a day, with the reason why nothing runs in it."""

    begins: int
    ends: int
    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of a shared calendar that names weekdays, or times of the day.

    `first`, `last`: its days; None: all.
    `weekdays`: of these days, only those that fall on one of these weekdays (Sunday is 0); None: all.
    """

    first: date | None
    last: date | None
    weekdays: frozenset[int] | None
    begins: int
    ends: int
    reason: str

    def holds_on(self, day: date) -> bool:
        """Check whether the rule excludes time of this day."""
        within = self.first is None or self.last is None or self.first <= day <= self.last
        return within and (self.weekdays is None or day.isoweekday() % 7 in self.weekdays)


BEGINS = attrgetter("begins")


def windows_of(day: date, rules: Iterable[Rule]) -> tuple[Window, ...]:
    """Return the parts of a day that rules exclude, in order. A time in several rules belongs to the first of them."""
    found: list[Window] = []
    for rule in rules:
        if not rule.holds_on(day):
            continue
        low = max(bisect_right(found, rule.begins, key=BEGINS) - 1, 0)
        high = bisect_left(found, rule.ends, key=BEGINS)
        taken = [(window.begins, window.ends) for window in found[low:high]]
        open_parts = subtract([(rule.begins, rule.ends)], taken)
        found[low:high] = sorted([*found[low:high], *(Window(*part, rule.reason) for part in open_parts)], key=BEGINS)
    return tuple(found)


def since_midnight(naive: datetime) -> int:
    """Return a wall clock as microseconds since midnight."""
    return (naive - datetime.combine(naive.date(), time())) // MICROSECOND


def on_day(day: date, wall: int) -> datetime:
    """Return the wall clock of a day. The end of the day is the midnight after it."""
    return datetime.combine(day, time()) + wall * MICROSECOND


def join(stretches: Iterable[tuple[Point, Point]]) -> list[tuple[Point, Point]]:
    """Return the union of stretches, disjoint and in order; those that touch become one."""
    found: list[tuple[Point, Point]] = []
    for begin, end in sorted(stretches):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif begin < end:
            found.append((begin, end))
    return found


def intersect(some: Sequence[tuple[Point, Point]], others: Sequence[tuple[Point, Point]]) -> list[tuple[Point, Point]]:
    """Return what lies in both; each is disjoint and in order."""
    found: list[tuple[Point, Point]] = []
    i = j = 0
    while i < len(some) and j < len(others):
        begin, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if begin < end:
            found.append((begin, end))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def subtract(some: Sequence[tuple[Point, Point]], others: Sequence[tuple[Point, Point]]) -> list[tuple[Point, Point]]:
    """Return what lies in the first and not in the others; each is disjoint and in order."""
    found: list[tuple[Point, Point]] = []
    j = 0
    for begin, end in some:
        while j < len(others) and others[j][1] <= begin:
            j += 1
        since, at = begin, j
        while at < len(others) and others[at][0] < end:
            if others[at][0] > since:
                found.append((since, others[at][0]))
            since = max(since, others[at][1])
            at += 1
        if since < end:
            found.append((since, end))
    return found


def parse_wall(value: Any, otherwise: int) -> int:
    """Return a time of the day, such as `18:00:00` or `24:00:00`, in microseconds since midnight.

    `otherwise`: the value for None.
    """
    if value is None:
        return otherwise
    hours, minutes, seconds = (*str(value).split(":"), "0")[:3]
    length = timedelta(hours=int(hours), minutes=int(minutes), microseconds=round(float(seconds) * 1_000_000))
    return length // MICROSECOND


def describe_wall(wall: int) -> str:
    """Describe a time of the day: `18:00`, `06:30:15`, `24:00`."""
    seconds, fraction = divmod(wall, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if seconds % 60 or fraction:
        text += f":{seconds % 60:02}"
    return text + (f".{fraction:06}".rstrip("0") if fraction else "")
