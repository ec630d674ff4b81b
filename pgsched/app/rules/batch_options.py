"""The options `batch` and `batch_wait` of `@app.task`, checked when the task is registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgsched.errors import TaskError

LARGEST, LONGEST_S = 10_000, 3600.0


@dataclass(frozen=True, slots=True)
class Gathering:
    """How runs of a task are gathered: up to `size` for one call, which waits up to `wait_s` seconds for them."""

    size: int
    wait_s: float


def check_batch_options(task: str, batch: Any, batch_wait: Any, run_in: str | None, capture: bool) -> Gathering | None:
    """Return the checked options of a batched task, or None without `batch`. Raises TaskError for a wrong value."""
    if batch is None:
        if batch_wait is not None:
            raise TaskError(f"task {task}: batch_wait: says how long a batch is gathered: add batch=")
        return None
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= LARGEST:
        raise TaskError(f"task {task}: batch: expected a whole number from 1 to {LARGEST}, got {batch!r}")
    wait = 0.1 if batch_wait is None else batch_wait
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= LONGEST_S:
        raise TaskError(f"task {task}: batch_wait: expected seconds from 0 to {LONGEST_S:g}, got {batch_wait!r}")
    if run_in == "process" or capture:
        what = "capture" if capture else 'run_in="process"'
        raise TaskError(f"task {task}: {what}: is for one run at a time, not for a batch")
    return Gathering(batch, float(wait))
