"""What a program reads about a run: its row for a list, all its details, how it ended, and its output.

Invariant: these values are immutable and belong to one moment. All instants are timezone-aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.model import State


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as it is in a list.

    `job`: the name of the job whose run it is; None for any other run.
    `kind`: `task`, `command`, `shell`, `sql` or `http`.
    `origin`: what made the run: `enqueue`, `schedule`, `manual` or `backfill`.
    `scheduled_at`: the slot of its job.
    `available_at`: when it is due; None while it waits for other runs.
    `attempt`: how many attempts were begun.
    `reason`: why it is in this state, where there is something to say.
    `error`: the error of the last attempt that failed.
    """

    id: int
    state: State
    task: str
    queue: str
    kind: str
    job: str | None
    origin: str
    scheduled_at: datetime | None
    available_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    max_attempts: int
    reason: str | None
    error: str | None
    tags: list[str] | None


@dataclass(frozen=True, slots=True)
class RunInfo(RunSummary):
    """All that is known about a run.

    `args`, `result`: the JSON values.
    `progress`: what the handler reported last: `{"done": 42, "total": 100, "note": "copying", "at": ...}`.
    `worker`: the name of the worker that runs it or ran it last.
    `cancel_requested_at`: since when its worker is asked to stop it.
    `attempts`: its attempts that failed, the oldest first: rows of attempt, outcome, started_at, finished_at, worker,
      error, traceback and log_tail.
    """

    priority: int
    owner: str | None
    args: Any
    result: Any
    progress: dict[str, Any] | None
    worker: str | None
    unique_key: str | None
    idempotency_key: str | None
    concurrency_key: str | None
    cancel_requested_at: datetime | None
    attempts: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run has ended, or its state so far.

    `traceback`: of the last attempt that failed. `task`: None for a run of another kind.
    """

    state: State
    result: Any
    error: str | None
    reason: str | None
    traceback: str | None
    task: str | None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A piece of what an attempt printed or logged.

    `stream`: `stdout`, `stderr`, `log`, or `cut` where output was left out (`text` says how much).
    `text`: one or more whole lines, or a part of a long one.
    """

    attempt: int
    at: datetime
    stream: str
    text: str
