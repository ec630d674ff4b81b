"""Format lengths of time, ages, limits and retention: the same words on the command line and in the console."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def format_short_duration(seconds: float | timedelta | None) -> str:
    """Format a length of time in at most two units: 90 seconds as `1m 30s`.

    Below ten seconds with decimals, below one second in milliseconds; None as `-`.
    """
    if seconds is None:
        return "-"
    left = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    sign, left = ("-", -left) if left < 0 else ("", left)
    if left < 0.9995:
        return f"{sign}{left * 1000:.0f}ms" if left >= 0.0005 else "0s"
    if left < 10:
        return f"{sign}{left:.3g}s"
    parts, left = [], int(left)
    for size, unit in UNITS:
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return sign + " ".join(parts[:2])


def format_seconds(seconds: float) -> str:
    """Format a length of time for a sentence: `0.4 ms`, `12 ms`, `1.23 s`, `2m 5s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0095 else f"{seconds * 1000:.1f} ms"
    return f"{seconds:.3g} s" if seconds < 59.5 else format_short_duration(seconds)


def format_age(moment: datetime | None, now: datetime) -> str:
    """Format how far an instant is from now: `3m 5s ago`, `in 20s`."""
    if moment is None:
        return "-"
    seconds = (now - moment).total_seconds()
    return f"{format_short_duration(seconds)} ago" if seconds >= 0 else f"in {format_short_duration(-seconds)}"


def due_at(run: Mapping[str, Any]) -> datetime:
    """Return when a run without a slot may start or might have started.

    - A run that waits for other runs: when it was created.
    - An ended run: not later than its last attempt started. The pause after that attempt does not count.
    """
    at: datetime | None = run["available_at"]
    if at is None:
        return run["created_at"]  # type: ignore[no-any-return]
    ended = run["finished_at"] is not None and run["started_at"] is not None
    return min(at, run["started_at"]) if ended else at


def shorten(text: str, most: int) -> str:
    """Return the text, shortened to `most` characters with `…` at its end."""
    return text if len(text) <= most else text[: most - 1] + "…"


def describe_limit(row: dict[str, Any], concurrency: int | None) -> str:
    """Format the settings of a limit: `5 at once, 100 in 1m, burst 10`."""
    parts = []
    if concurrency is not None:
        parts.append(f"{concurrency} at once")
    if row["rate"] is not None:
        period = row["rate_s"] if "rate_s" in row else row["rate_period"]
        burst = row["rate_burst"] or max(1, row["rate"] // 10)
        parts.append(f"{row['rate']} in {format_short_duration(period)}, burst {burst}")
    if row.get("ordered"):
        parts.append("in order")
    return ", ".join(parts) or "not limited"


def describe_queue(row: dict[str, Any]) -> str:
    """Describe the settings of a queue for people."""
    parts = [describe_limit(row, row["concurrency_limit"])]
    if row["fair"]:
        parts.append("keys take turns")
    if row["ageing"] is not None:
        parts.append(f"priorities rise every {format_short_duration(row['ageing'])}")
    if row["max_depth"] is not None:
        parts.append(f"at most {row['max_depth']} wait, then {row['on_full']}")
    if row.get("keep"):
        parts.append(f"keeps {describe_keep(row['keep'])}")
    return ", ".join(part for part in parts if part != "not limited") or "not limited"


def describe_keep(keep: Mapping[str, Any] | None) -> str:
    """Format retention times: `dead 90 days, any other 7 days`."""
    if not keep:
        return "-"
    named = [f"{outcome} {readable_keep_time(time)}" for outcome, time in keep.items() if outcome != "any"]
    others = [("all " if not named else "any other ") + readable_keep_time(keep["any"])] if "any" in keep else []
    return ", ".join(named + others)


def describe_keep_of_all(keep: Mapping[str, Any]) -> str:
    """Format the global retention times; outcomes without one have the default."""
    return describe_keep({"any": "7 days", **keep})


def readable_keep_time(time: str) -> str:
    """Format `604800 seconds` as `7 days`; text in other units stays as it was typed."""
    number, _, unit = time.partition(" ")
    if unit != "seconds" or not number.isdigit():
        return time
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if int(number) % size == 0 and int(number):
            count = int(number) // size
            return f"{count} {name}{'' if count == 1 else 's'}"
    return time
