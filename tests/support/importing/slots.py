"""The slots of imported columns, by pgsched's own schedules, and which of them are near a clock change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse

NOW = datetime(2026, 6, 1, 7, 13, 21, tzinfo=UTC)
FOR_EVER = datetime.max.replace(tzinfo=UTC)
A_DAY = timedelta(days=1)


def imported_slots(columns: Mapping[str, Any], start: datetime = NOW, count: int = 1000) -> list[datetime]:
    """Return the first slots of a job after an instant."""
    if "run_at" in columns:
        return [columns["run_at"]]
    starts_at = columns.get("starts_at")
    schedule = parse(columns["schedule"], columns.get("timezone", "UTC"), starts_at)
    since = start if starts_at is None else max(start, starts_at - timedelta(microseconds=1))
    return list(islice(schedule.between(since, columns.get("ends_at", FOR_EVER)), count))


def near_changes(timezone: str, years: int = 60) -> list[datetime]:
    """Return the instants at which clocks of a zone change."""
    return [change.at for change in zones.changes(zones.zone(timezone), NOW, NOW + timedelta(days=366 * years))]


def away_from_changes(slots: list[datetime], timezone: str) -> list[datetime]:
    """Return the slots with the same offset a day before and a day after."""
    tz = ZoneInfo(timezone)
    return [s for s in slots if (s - A_DAY).astimezone(tz).utcoffset() == (s + A_DAY).astimezone(tz).utcoffset()]
