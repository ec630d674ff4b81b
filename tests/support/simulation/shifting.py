"""A second statement of what shared calendars do, from the rules alone, slow and obvious.

Nothing is taken from the product but the nominal slots: excluded times are looked up row by row, and each nominal slot
is moved day by day on the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from pgsched.core.schedule.base import Schedule
from pgsched.core.schedule.cron import parse
from tests.support.simulation.oracle import load

DAY, MINUTE, SECOND = timedelta(days=1), timedelta(minutes=1), timedelta(seconds=1)
MOST_DAYS = 31


@dataclass(frozen=True)
class Times:
    """A row of calendar_times."""

    first: date | None = None
    last: date | None = None
    weekdays: tuple[int, ...] | None = None
    begins: time | None = None
    ends: time | None = None

    def row(self) -> tuple[object, ...]:
        return ("c", self.first, self.last, self.weekdays, self.begins, self.ends, None)

    def holds(self, wall: datetime) -> bool:
        day = wall.date()
        if self.first is not None and self.last is not None and not self.first <= day <= self.last:
            return False
        if self.weekdays is not None and (day.weekday() + 1) % 7 not in self.weekdays:
            return False
        return self.begins is None or self.ends is None or self.begins <= wall.time() < self.ends


def wall_at(instant: datetime, tz: ZoneInfo) -> datetime:
    return instant.astimezone(tz).replace(tzinfo=None, fold=0)


def instant_of(wall: datetime, tz: ZoneInfo) -> datetime:
    """Return the first instant whose wall clock is this one; for one that is skipped, the first after the gap."""
    guess = wall.replace(tzinfo=tz, fold=0).astimezone(UTC)
    if wall_at(guess, tz) == wall:
        return guess
    at = guess - 26 * timedelta(hours=1)
    while wall_at(at + 30 * MINUTE, tz) < wall:
        at += 30 * MINUTE
    while wall_at(at + SECOND, tz) < wall:
        at += SECOND
    return at + SECOND


class Restated:
    """A nominal schedule and what a calendar makes of it. `step`: 1, -1 or 0."""

    def __init__(self, expression: str, zone: str, rows: Sequence[Times], step: int) -> None:
        self.tz = load(zone)
        self.rows = rows
        self.step = step
        self.nominal = parse(expression, zone)
        self._walls = parse(expression)  # in UTC, which has no gaps, the slots are the named wall clocks

    def excluded(self, instant: datetime) -> bool:
        return any(row.holds(wall_at(instant, self.tz)) for row in self.rows)

    def named(self, nominal: datetime) -> datetime:
        """Return the first wall clock that the schedule names for this slot."""
        wall, before = wall_at(nominal, self.tz), wall_at(nominal - SECOND, self.tz)
        if wall - before == SECOND or self._is_wildcard():
            return wall
        first = self._walls.after(before.replace(tzinfo=UTC))
        assert first is not None
        return min(first.replace(tzinfo=None), wall)

    def _is_wildcard(self) -> bool:
        words = self.nominal.expression.split()
        return any(word.startswith("*") for word in words[:-3])

    def slot(self, nominal: datetime) -> datetime | None:
        """Return where a nominal slot lies; None: nowhere, it is skipped."""
        if not self.step or not self.excluded(nominal):
            return nominal
        named = self.named(nominal)
        day = wall_at(nominal, self.tz).date()
        for _ in range(MOST_DAYS):
            day += self.step * DAY
            found = instant_of(datetime.combine(day, named.time()), self.tz)
            if not self.excluded(found):
                return found
        return None

    def slots(
        self, start: datetime, end: datetime, decided: Callable[[datetime], bool] = lambda _: False
    ) -> list[datetime]:
        """Return the slots in (start, end], of the nominal ones that are not decided."""
        return sorted(slot for slot in self.by_slot(start, end, decided) if start < slot <= end)

    def by_slot(
        self, start: datetime, end: datetime, decided: Callable[[datetime], bool] = lambda _: False
    ) -> dict[datetime, list[datetime]]:
        """Return slots, those in (start, end] and more, each with its nominal ones."""
        found: dict[datetime, list[datetime]] = {}
        for nominal in nominals(self.nominal, start - (MOST_DAYS + 2) * DAY, end + (MOST_DAYS + 2) * DAY):
            if not decided(nominal):
                found.setdefault(self.slot(nominal) or nominal, []).append(nominal)
        return found


def nominals(schedule: Schedule, start: datetime, end: datetime) -> Iterable[datetime]:
    return schedule.between(start, end)
