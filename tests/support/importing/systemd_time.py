"""The calendar events of systemd.time(7) restated: each day is asked whether it matches, each time of it likewise."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tests.support.importing.walls import both_passes, days_from, in_order, walls_of_days

DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
SHORT = {
    "minutely": "*-*-* *:*", "hourly": "*-*-* *:0", "daily": "*-*-* 0:0", "weekly": "mon *-*-* 0:0",
    "monthly": "*-*-1 0:0", "quarterly": "*-1,4,7,10-1 0:0", "semiannually": "*-1,7-1 0:0", "yearly": "*-1-1 0:0",
}  # fmt: skip


def matches(component: str, value: int) -> bool:
    for item in component.split(","):
        body, _, repeat = item.partition("/")
        first, dots, last = body.partition("..")
        if body == "*":
            return True
        low, high = int(first), int(last) if dots else None
        if repeat:
            if value >= low and (value - low) % int(repeat) == 0 and (high is None or value <= high):
                return True
        elif low <= value <= (low if high is None else high):
            return True
    return False


def matches_from_the_end(component: str, left: int) -> bool:
    """Check a day that has `left` days of its month left, itself included: 1 is the last day."""
    for item in component.split(","):
        body, _, repeat = item.partition("/")
        first, dots, last = body.partition("..")
        if body == "*":
            return True
        if repeat and not dots:
            if left <= int(first) and (int(first) - left) % int(repeat) == 0:
                return True
        elif int(first) <= left <= int(last or first):
            return True
    return False


class SystemdEvent:
    """A calendar event, in the zone of its machine."""

    def __init__(self, text: str, zone: str = "UTC") -> None:
        words = SHORT.get(text.lower(), text).lower().split()
        self._zone = ZoneInfo(zone)
        self._weekdays = set(range(7))
        if words[0][0].isalpha():
            self._weekdays = set()
            for item in words.pop(0).strip(",").split(","):
                first, _, last = item.partition("..")
                low, high = DAYS.index(first[:3]), DAYS.index((last or first)[:3])
                self._weekdays |= set(range(low, high + 1))
        dates = next((word for word in words if "-" in word or "~" in word), "*-*-*")
        clock = next((word for word in words if ":" in word), "0:0")
        self._end = "~" in dates
        *years, self._months, self._days = dates.replace("~", "-").split("-")
        self._years = years[0] if years else "*"
        hours, minutes, *seconds = clock.split(":")
        self._times = [
            time(h, m, s)
            for h in range(24) if matches(hours, h)
            for m in range(60) if matches(minutes, m)
            for s in range(60) if matches(seconds[0] if seconds else "0", s)
        ]  # fmt: skip

    def _is_day(self, day: date) -> bool:
        left = monthrange(day.year, day.month)[1] - day.day + 1
        in_days = matches_from_the_end(self._days, left) if self._end else matches(self._days, day.day)
        return in_days and day.weekday() in self._weekdays and matches(self._years, day.year)

    def _slots(self, start: datetime) -> Iterator[datetime]:
        months = [month for month in range(1, 13) if matches(self._months, month)]
        days = days_from(start.astimezone(self._zone).date() - timedelta(days=1), months)
        for wall in walls_of_days(filter(self._is_day, days), self._times):
            yield from both_passes(wall, self._zone)[:1]  # what does not exist is left out; the first of two counts

    def slots(self, start: datetime, count: int) -> list[datetime]:
        """Return the first slots after an instant."""
        assert start.tzinfo is UTC
        return in_order(self._slots(start), count, start)
