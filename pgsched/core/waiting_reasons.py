"""Explain in words why pauses and limits keep a run from starting.

Pure: rows are passed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pgsched.core.units import format_elapsed

Row = Mapping[str, Any]
# The beginning of `runs.reason` for a run that no live release of its task takes.
NEWEST_RELEASE = "waits for a worker of the newest release"


def describe_holds(held: Row, state: str, queue: str) -> str | None:
    """Return the pauses and limits that hold a queued or waiting run; None where none does.

    `held`: a row of `run_holding`.
    """
    parts = [describe_pause(pause) for pause in held["pauses"] or ()]
    if state == "waiting":
        parts += [text for text in (key_limit(held), queue_limit(held, queue)) if text]
    return "; ".join(parts) or None


def describe_pause(pause: Row) -> str:
    """Describe one pause."""
    what = "everything" if pause["what"] == "all" else f"{pause['what']} {pause['name']}"
    return f"{what} is paused by {pause['paused_by']}" + (f": {pause['reason']}" if pause["reason"] else "")


def key_limit(held: Row) -> str | None:
    """Describe the limit of the run's key, if it has one."""
    if held["limit_name"] is None or (held["concurrency"] is None and held["rate"] is None):
        return None
    behind = f", {held['ahead']} wait before it" if held["ahead"] else ""
    if held["concurrency"] is not None and held["admitted"] >= held["concurrency"]:
        of = "in order, " if held["ordered"] else ""
        return (
            f"limit {held['limit_name']}: {of}{held['concurrency']} of key {held['key']} at once,"
            f" {held['admitted']} are queued or running{behind}"
        )
    if held["rate"] is not None:
        return f"limit {held['limit_name']}: {format_rate(held['rate'], held['period_s'])} of key {held['key']}{behind}"
    return f"limit {held['limit_name']} of key {held['key']}{behind}"


def queue_limit(held: Row, queue: str) -> str | None:
    """Describe the limit of the run's queue, if it holds the run."""
    most = held["queue_concurrency"]
    if most is not None and held["queue_admitted"] >= most:
        return f"queue {queue}: {most} at once, {held['queue_admitted']} are queued or running"
    if held["queue_rate"] is not None:
        return f"queue {queue}: {format_rate(held['queue_rate'], held['queue_period_s'])}"
    return f"queue {queue}: keys take turns" if held["fair"] else None


def format_rate(rate: int, period_s: float) -> str:
    """Format a rate: `100 starts in 1 minute`."""
    return f"{rate} starts in {format_elapsed(timedelta(seconds=period_s))}"
