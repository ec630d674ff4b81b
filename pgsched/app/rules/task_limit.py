"""A limit that a task declares: `@app.task(concurrency=5, rate="100/m")`.

Invariant: a task's limit is the row `task:NAME` of `pgsched.limits`. The runs of the task have the key `task:NAME`, or
`task:NAME:KEY` where they have a key. So the limit holds for all of them, or for each key by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgsched.app.declarations import integer
from pgsched.core.input_values import parse_rate
from pgsched.errors import InputError, TaskError

PREFIX = "task:"
LONGEST_NAME = 150  # a key is cut at 160 characters, and its hash stands behind
LONGEST_PERIOD = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class TaskLimit:
    """How many runs of a task may be at work, and how many may start in a period; None: no limit.

    `name`: the row of `pgsched.limits`.
    """

    name: str
    concurrency: int | None
    rate: int | None
    rate_period: timedelta | None

    def key(self, own: str | None) -> str:
        """Return the key of a run that has this key of its own, or none."""
        if own is not None and f"{own}:".startswith(f"{self.name}:"):
            return own
        return self.name if own is None else f"{self.name}:{own}"

    def as_options(self) -> dict[str, Any]:
        """Return the limit as the task registers it."""
        period = None if self.rate_period is None else self.rate_period.total_seconds()
        given = {"concurrency": self.concurrency, "rate": self.rate, "rate_period": period}
        return {name: value for name, value in given.items() if value is not None}


def check_limit(task: str, concurrency: Any, rate: Any) -> TaskLimit | None:
    """Return the limit of a task, or None.

    Raises InputError for a wrong value, TaskError for a task whose name a limit cannot have.
    """
    if concurrency is None and rate is None:
        return None
    if ":" in task or len(task) > LONGEST_NAME:
        raise TaskError(
            f"task {task[:60]}: concurrency, rate: the task's name must have no colon and at most {LONGEST_NAME}"
            " characters, because the limit is named after it: give it another name"
        )
    count = None if concurrency is None else integer(0, 1_000_000)("concurrency", concurrency)
    if rate is None:
        return TaskLimit(PREFIX + task, count, None, None)
    if not isinstance(rate, str):
        raise InputError(f"rate: expected text such as 100/m or 5/10s, got {rate!r}", "rate")
    number, period = parse_rate(rate)
    if not timedelta(milliseconds=1) <= period <= LONGEST_PERIOD:
        raise InputError(f"rate: {rate}: the period must be between 1 ms and 31 days", "rate")
    return TaskLimit(PREFIX + task, count, number, period)
