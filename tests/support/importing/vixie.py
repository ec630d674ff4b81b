"""The matching of Vixie's cron restated: bits for each field, and whether day and weekday began with a star."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tests.support.importing.walls import both_passes, days_from, end_of_gap, in_order, walls_of_days

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
LIMITS = ((0, 59, []), (0, 23, []), (1, 31, []), (1, 12, MONTHS), (0, 7, WEEKDAYS))
MACROS = {"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
          "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}  # fmt: skip


def bits(text: str, low: int, high: int, names: list[str]) -> set[int]:
    found: set[int] = set()
    for item in text.split(","):
        body, _, step = item.partition("/")
        if body == "*":
            first, last = low, high
        else:
            first_text, dash, last_text = body.partition("-")
            first = names.index(first_text) + low if first_text in names else int(first_text)
            last = first
            if dash:
                last = names.index(last_text) + low if last_text in names else int(last_text)
                last = 7 if high == 7 and last == 0 < first else last  # cronie
        found |= set(range(first, last + 1, int(step or 1)))
    return found


class Vixie:
    """An entry of a crontab, in the zone of its machine."""

    def __init__(self, times: str, zone: str = "UTC") -> None:
        words = MACROS.get(times, times).lower().split()
        self._minutes, self._hours, self._days, self._months, weekdays = (
            bits(word, *limits) for word, limits in zip(words, LIMITS, strict=True)
        )
        self._weekdays = {day % 7 for day in weekdays}
        self._stars = [word.startswith("*") for word in words]
        self._zone = ZoneInfo(zone)

    def _day_matches(self, day: date) -> bool:
        in_days, in_weekdays = day.day in self._days, (day.weekday() + 1) % 7 in self._weekdays
        both = self._stars[2] or self._stars[4]
        return in_days and in_weekdays if both else in_days or in_weekdays

    def _walls(self, start: datetime) -> Iterator[datetime]:
        times = [time(hour, minute) for hour in self._hours for minute in self._minutes]
        yield from walls_of_days(filter(self._day_matches, days_from(start.date(), self._months)), times)

    def _slots(self, start: datetime) -> Iterator[datetime]:
        wildcard = self._stars[0] or self._stars[1]
        for wall in self._walls(start.astimezone(self._zone) - timedelta(days=1)):
            passes = both_passes(wall, self._zone)
            if wildcard:
                yield from passes
            else:
                yield passes[0] if passes else end_of_gap(wall, self._zone)

    def slots(self, start: datetime, count: int) -> list[datetime]:
        """Return the first slots after an instant."""
        assert start.tzinfo is UTC
        return in_order(self._slots(start), count, start)
