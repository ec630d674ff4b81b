"""Format lengths of time in plain English."""

from __future__ import annotations

from datetime import timedelta

DAY, HOUR, MINUTE = 86_400, 3600, 60


def format_duration(length: timedelta) -> str:
    """Format elapsed time, in one unit where possible: `90 seconds`, `24 hours`, `1 hour 2 minutes 5 seconds`.

    The largest unit is the hour, because a calendar day may have 23 or 25 hours.
    """
    total = length // timedelta(seconds=1)
    for size, unit in ((HOUR, "hour"), (MINUTE, "minute"), (1, "second")):
        if total % size == 0 and (total < 120 * size or size == HOUR):
            return format_count(total // size, unit)
    return _hours(total)


def format_elapsed(length: timedelta) -> str:
    """Format elapsed time in the largest units: `1 minute 30 seconds`.

    From two days on: in days of 24 hours, and hours.
    """
    total = length // timedelta(seconds=1)
    if total >= 2 * DAY:
        hours = total % DAY // HOUR
        return format_count(total // DAY, "day") + (f" {format_count(hours, 'hour')}" if hours else "")
    return _hours(total)


def _hours(total: int) -> str:
    parts = ((total // HOUR, "hour"), (total // MINUTE % 60, "minute"), (total % 60, "second"))
    return " ".join(format_count(number, unit) for number, unit in parts if number) or "0 seconds"


def format_count(number: int, unit: str) -> str:
    """Format a number with its unit: `1 hour`, `2 hours`."""
    return f"{number} {unit}{'' if number == 1 else 's'}"
