"""Find the slots of a schedule without the product: by a walk through the years, or by counting from an anchor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache

from tests.support.simulation.oracle import Meaning, Walk, load

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
QUARTER = timedelta(minutes=15)
START = datetime(2025, 1, 1, tzinfo=UTC)
YEARS = 3 * 365 * DAY
EVERY = (7, 600, 3600, 86_400)
MINUTES = (("0", {0}), ("*/15", {0, 15, 30, 45}), ("15,45", {15, 45}), ("30", {30}))
HOURS = (("*", {*range(24)}), ("2", {2}), ("9-17", {*range(9, 18)}), ("*/6", {0, 6, 12, 18}), ("3", {3}))
DAYS: tuple[tuple[str, Callable[[date], bool]], ...] = (
    ("* * *", lambda _: True),
    ("* * MON-FRI", lambda d: d.isoweekday() < 6),
    ("1,15 * *", lambda d: d.day in (1, 15)),
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York")


@cache
def walked(zone: str) -> Walk:
    return Walk(load(zone), START - DAY, (YEARS + 400 * DAY) // QUARTER, QUARTER)


@cache
def cron_slots(zone: str, minute: int, hour: int, day: int) -> tuple[str, list[datetime]]:
    """Return an expression, and all its slots, found by walking through the years in quarters of an hour."""
    (minute_text, minutes), (hour_text, hours), (day_text, on_day) = MINUTES[minute], HOURS[hour], DAYS[day]
    text = f"{minute_text} {hour_text} {day_text}"
    wildcard = "*" in (minute_text[0], hour_text[0])
    return text, walked(zone).slots(Meaning(text, {0}, minutes, hours, on_day, wildcard, six=False))


@dataclass
class Epoch:
    """A time in which one schedule was in force: its slots in (after, until] must be covered by rows."""

    expression: str
    timezone: str
    listed: list[datetime] | None
    interval: timedelta
    anchor: datetime
    after: datetime
    until: datetime | None = None

    def slots(self, start: datetime, end: datetime) -> list[datetime]:
        """Return the slots in (start, end], found without the product."""
        if self.listed is not None:
            return self.listed[bisect_right(self.listed, start) : bisect_right(self.listed, end)]
        first = max(0, (start - self.anchor) // self.interval + 1)
        count = (end - self.anchor) // self.interval - first + 1
        return [self.anchor + (first + n) * self.interval for n in range(count)]
