"""The matching of robfig/cron v3 restated: bits with a star bit, and each instant whose wall clock matches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tests.support.importing.vixie import MACROS, MONTHS, WEEKDAYS
from tests.support.importing.walls import both_passes, days_from, in_order, walls_of_days

LIMITS = ((0, 59, []), (0, 23, []), (1, 31, []), (1, 12, MONTHS), (0, 6, WEEKDAYS))


def bits_with_star(text: str, low: int, high: int, names: list[str]) -> tuple[set[int], bool]:
    found: set[int] = set()
    star = False
    for item in filter(None, text.split(",")):
        body, slash, step_text = item.partition("/")
        step = int(step_text) if slash else 1
        first_text, dash, last_text = body.partition("-")
        if first_text in ("*", "?"):
            first, last = low, high
            star = star or step == 1
        else:
            first = names.index(first_text) + low if first_text in names else int(first_text)
            last = high if slash else first
            if dash:
                last = names.index(last_text) + low if last_text in names else int(last_text)
        found |= set(range(first, last + 1, step))
    return found, star


class Robfig:
    """A schedule of a CronJob in its zone."""

    def __init__(self, schedule: str, zone: str = "UTC") -> None:
        words = MACROS.get(schedule, schedule).lower().split()
        fields = [bits_with_star(word, *limits) for word, limits in zip(words, LIMITS, strict=True)]
        (self._minutes, _), (self._hours, _), (self._days, stars), (self._months, _), (self._weekdays, more) = fields
        self._both = stars or more
        self._zone = ZoneInfo(zone)

    def _day_matches(self, day: date) -> bool:
        in_days, in_weekdays = day.day in self._days, (day.weekday() + 1) % 7 in self._weekdays
        return in_days and in_weekdays if self._both else in_days or in_weekdays

    def _slots(self, start: datetime) -> Iterator[datetime]:
        first = (start.astimezone(self._zone) - timedelta(days=1)).date()
        times = [time(hour, minute) for hour in self._hours for minute in self._minutes]
        for wall in walls_of_days(filter(self._day_matches, days_from(first, self._months)), times):
            yield from both_passes(wall, self._zone)

    def slots(self, start: datetime, count: int) -> list[datetime]:
        """Return the first slots after an instant."""
        assert start.tzinfo is UTC
        return in_order(self._slots(start), count, start)
