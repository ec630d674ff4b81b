"""Find the days that plain day and weekday numbers name, without the cron engine.

Days are naive midnights. Fields are canonical text: `*`, or numbers in rising order. Days with L, W or # need the
engine (cron.py).
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from datetime import datetime, timedelta

DAY = timedelta(days=1)
LAST = datetime.max - DAY
EVERY_DAY = ("*", "*")


class PlainDays:
    """The days in some months that match both a list of month days and a list of weekdays."""

    __slots__ = ("_every", "_months", "_numbers", "_weekdays", "_years")

    def __init__(self, months: str, days: tuple[str, str], years: int) -> None:
        self._every = (months, days) == ("*", EVERY_DAY)
        self._months = _numbers(months) or [*range(1, 13)]
        self._numbers = _numbers(days[0]) or [*range(1, 32)]
        self._weekdays = _numbers(days[1]) or [*range(7)]
        self._years = years

    def first(self, day: datetime) -> datetime | None:
        """Return the first of these days that is not before `day`.

        None if there is none within the given years, or before the end of the calendar.
        """
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
        """Return the first of these days in the month of `day` that is not before it."""
        first, length = monthrange(day.year, day.month)  # Monday is 0 here, Sunday in a schedule
        for number in self._numbers[bisect_left(self._numbers, day.day) :]:
            if number <= length and (first + number) % 7 in self._weekdays:
                return datetime(day.year, day.month, number)
        return None


def is_plain(days: tuple[str, str]) -> bool:
    """Check whether both day fields are plain numbers or `*`."""
    return all(column == "*" or column.replace(",", "").isdigit() for column in days)


def _numbers(column: str) -> list[int]:
    return [] if column == "*" else [int(number) for number in column.split(",")]
