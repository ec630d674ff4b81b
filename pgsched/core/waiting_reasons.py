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


def describe_holds(holding: Row, state: str, queue: str) -> str | None:
    """Return the pauses and limits that hold a queued or waiting run; None where none does.

    `holding`: a row of `run_holding`.
    """
    parts = [describe_pause(pause) for pause in holding["pauses"] or ()]
    if state == "waiting":
        parts += [text for text in (key_limit(holding), queue_limit(holding, queue)) if text]
    return "; ".join(parts) or None


def describe_pause(pause: Row) -> str:
    """Describe one pause."""
    what = "everything" if pause["what"] == "all" else f"{pause['what']} {pause['name']}"
    return f"{what} is paused by {pause['paused_by']}" + (f": {pause['reason']}" if pause["reason"] else "")


def key_limit(holding: Row) -> str | None:
    """Describe the limit of the run's key, if it has one."""
    if holding["limit_name"] is None or (holding["concurrency"] is None and holding["rate"] is None):
        return None
    behind = f", {holding['ahead']} wait before it" if holding["ahead"] else ""
    if holding["concurrency"] is not None and holding["admitted"] >= holding["concurrency"]:
        of = "in order, " if holding["ordered"] else ""
        return (
            f"limit {holding['limit_name']}: {of}{holding['concurrency']} of key {holding['key']} at once,"
            f" {holding['admitted']} are queued or running{behind}"
        )
    if holding["rate"] is not None:
        rate = format_rate(holding["rate"], holding["period_s"])
        return f"limit {holding['limit_name']}: {rate} of key {holding['key']}{behind}"
    return f"limit {holding['limit_name']} of key {holding['key']}{behind}"


def queue_limit(holding: Row, queue: str) -> str | None:
    """Describe the limit of the run's queue, if it holds the run."""
    most = holding["queue_concurrency"]
    if most is not None and holding["queue_admitted"] >= most:
        return f"queue {queue}: {most} at once, {holding['queue_admitted']} are queued or running"
    if holding["queue_rate"] is not None:
        return f"queue {queue}: {format_rate(holding['queue_rate'], holding['queue_period_s'])}"
    return f"queue {queue}: keys take turns" if holding["fair"] else None


def format_rate(rate: int, period_s: float) -> str:
    """Format a rate: `100 starts in 1 minute`."""
    return f"{rate} starts in {format_elapsed(timedelta(seconds=period_s))}"
