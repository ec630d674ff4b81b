"""`Enqueued`: a run as a test sees it.

Invariant: a run looks the same whether it was recorded or is a row of a database.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.lifecycle import OPEN_STATES
from pgsched.core.model import State

UNSTARTED = (State.WAITING, State.SCHEDULED, State.QUEUED)


@dataclass(slots=True)
class Enqueued:
    """A run as it was enqueued, and what became of it.

    `at`: when the run is due.
    `slot`: the slot of a job's run, otherwise None.
    `attempt`: how many attempts have begun.
    `error`: the last failure in one line.
    `reason`: why the run was cancelled or missed, or why it waits.
    `expires_at`: when the run is missed, unless it has started.
    """

    id: int
    task: str
    args: Any
    at: datetime
    queue: str = "default"
    priority: int = 5
    tags: list[str] = field(default_factory=list)
    unique_key: str | None = None
    idempotency_key: str | None = None
    concurrency_key: str | None = None
    state: str = "queued"
    result: Any = None
    error: str | None = None
    reason: str | None = None
    attempt: int = 0
    max_attempts: int = 3
    slot: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    keep: timedelta | None = None
    kill_after: timedelta | None = None
    backoff: str | None = None
    backoff_base: timedelta | None = None
    backoff_max: timedelta | None = None
    backoff_jitter: float | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether the run has not ended."""
        return self.state in OPEN_STATES

    def __str__(self) -> str:
        tags = f" tags={self.tags}" if self.tags else ""
        return f"run {self.id}: {self.task} {self.args} queue={self.queue} at={self.at.isoformat()}{tags} {self.state}"


def enqueued_from_row(row: dict[str, Any]) -> Enqueued:
    """Return a row of the database as an `Enqueued`."""
    row = {**row, "at": row["available_at"], "slot": row["scheduled_at"], "tags": row["tags"] or []}
    del row["available_at"], row["scheduled_at"]
    return Enqueued(**row)
