"""The slots of an imported job, by the schedules of pgsched."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.core.schedule.cron import parse

FOR_EVER = datetime.max.replace(tzinfo=UTC)


def imported_slots(columns: Mapping[str, Any], start: datetime, count: int) -> list[datetime]:
    """Return the first slots after an instant: the union of the expressions between `;`, each instant once."""
    if "run_at" in columns:
        return [columns["run_at"]]
    start = max(start, columns.get("starts_at", start) - timedelta(microseconds=1))
    end = columns.get("ends_at", FOR_EVER)
    parts = [parse(one.strip(), columns["timezone"]).between(start, end) for one in columns["schedule"].split(";")]
    return list(islice((slot for slot, _ in groupby(heapq.merge(*parts))), count))


def away_from_changes(slots: list[datetime], zone: str) -> list[datetime]:
    """Return the slots with the same offset a day before and a day after."""
    tz, day = ZoneInfo(zone), timedelta(days=1)
    return [s for s in slots if (s - day).astimezone(tz).utcoffset() == (s + day).astimezone(tz).utcoffset()]
