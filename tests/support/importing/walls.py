"""From wall clocks to instants, by each source's rule for clock changes. Nothing of pgsched is used."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

LAST_YEAR = 9000


def days_from(start: date, months: Iterable[int]) -> Iterator[date]:
    """Yield the days of some months from a day on."""
    months = sorted(months)
    for year in range(start.year, LAST_YEAR):
        for month in months:
            for number in range(1, monthrange(year, month)[1] + 1):
                if (year, month, number) >= (start.year, start.month, start.day):
                    yield date(year, month, number)


def walls_of_days(days: Iterable[date], times: Iterable[time]) -> Iterator[datetime]:
    """Yield the wall clocks at some times of each day, in order."""
    listed = sorted(times)
    for day in days:
        yield from (datetime.combine(day, one) for one in listed)


def both_passes(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the instants at which the zone's clock shows this: none in a gap, two in a repeated hour."""
    found = []
    for fold in (0, 1):
        instant = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == wall and instant not in found:
            found.append(instant)
    return found


def end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant after the gap that a wall clock is in."""
    low = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)  # before the change
    high = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    low, high = min(low, high), max(low, high)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=1) // 2)
        if middle.astimezone(zone).replace(tzinfo=None) < wall:
            low = middle
        else:
            high = middle
    return high


def in_order(slots: Iterable[datetime], count: int, start: datetime) -> list[datetime]:
    """Return the first slots after an instant, each once. The slots come in order, but for those of a repeated hour."""
    found: set[datetime] = set()
    for slot in slots:
        if slot > start:
            found.add(slot)
        if len(found) >= count + 200:
            break
    return sorted(found)[:count]
