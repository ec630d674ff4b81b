"""The slots of imported columns, and of the libraries that they come from."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Any

from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse

NOW = datetime(2026, 6, 1, 7, 13, 21, tzinfo=UTC)
A_DAY = timedelta(days=1)


def slots_of(columns: Mapping[str, Any], start: datetime = NOW, count: int = 1000) -> list[datetime]:
    """Return the first slots after an instant; of `a; b` those of both expressions, each once."""
    timezone, anchor = columns.get("timezone", "UTC"), columns.get("starts_at")
    schedules = [parse(one.strip(), timezone, anchor) for one in columns["schedule"].split(";")]
    merged = (slot for slot, _ in groupby(heapq.merge(*(forever(one.after, start) for one in schedules))))
    begin, end = columns.get("starts_at", start), columns.get("ends_at")
    inside = (slot for slot in merged if slot >= begin)
    found = []
    for slot in islice(inside, count):
        if end is not None and slot > end:
            break
        found.append(slot)
    return found


def forever(after: Callable[[datetime], datetime | None], start: datetime) -> Iterator[datetime]:
    """Yield each slot that follows, until 40 years are over."""
    slot = after(start)
    while slot is not None and slot < start + 40 * 366 * A_DAY:
        yield slot
        slot = after(slot)


def near_changes(timezone: str, years: int = 60) -> list[datetime]:
    """Return the instants at which clocks of a zone change."""
    return [change.at for change in zones.changes(zones.zone(timezone), NOW, NOW + timedelta(days=366 * years))]


def without_changes(slots: list[datetime], changes: list[datetime], around: timedelta = A_DAY) -> list[datetime]:
    """Return the slots that are not near a clock change."""
    return [slot for slot in slots if all(abs(slot - change) > around for change in changes)]
