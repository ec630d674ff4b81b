"""The rule: days that are plain numbers are found by the calendar alone; only L, W and # need an engine.

Days are naive midnights. An expression's columns come in canonical text: `*`, or numbers in rising order.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from datetime import datetime, timedelta

DAY = timedelta(days=1)
LAST = datetime.max - DAY
EVERY_DAY = ("*", "*")


class PlainDays:
    """The days of a month's numbers and a week's that must both hold, in some months."""

    __slots__ = ("_every", "_months", "_numbers", "_weekdays", "_years")

    def __init__(self, months: str, days: tuple[str, str], years: int) -> None:
        self._every = (months, days) == ("*", EVERY_DAY)
        self._months = _numbers(months) or [*range(1, 13)]
        self._numbers = _numbers(days[0]) or [*range(1, 32)]
        self._weekdays = _numbers(days[1]) or [*range(7)]
        self._years = years

    def first(self, day: datetime) -> datetime | None:
        """The first day that is not before this one; None if there is none in so many years, or before time ends."""
        if self._every:
            return day
        last = min(day.year + self._years, LAST.year)
        while day.year <= last:
            if day.month in self._months and (found := self._in_month(day)):
                return found
            if (day.year, day.month) == (LAST.year, LAST.month):
                break
            day = datetime(day.year + day.month // 12, day.month % 12 + 1, 1)
        return None

    def _in_month(self, day: datetime) -> datetime | None:
        """The first one of its month that is not before this day."""
        first, length = monthrange(day.year, day.month)  # Monday is 0 here, Sunday in a schedule
        for number in self._numbers[bisect_left(self._numbers, day.day) :]:
            if number <= length and (first + number) % 7 in self._weekdays:
                return datetime(day.year, day.month, number)
        return None


def plain(days: tuple[str, str]) -> bool:
    """Are these numbers alone?"""
    return all(column == "*" or column.replace(",", "").isdigit() for column in days)


def _numbers(column: str) -> list[int]:
    return [] if column == "*" else [int(number) for number in column.split(",")]
