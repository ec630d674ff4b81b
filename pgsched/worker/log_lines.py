"""The log lines of a worker for its operator: what it serves, what still runs, and what failed for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pgsched import log
from pgsched.config import WorkerSettings
from pgsched.core.model import Outcome, Result, Settlement
from pgsched.db.queries.runs.workers import Registration
from pgsched.worker.attempts.attempt import RunningAttempt

logger = log.get("worker")
NAMES = 8
EVERY_S = 5.0
HURRY = "a second Ctrl-C or SIGTERM stops them now"
BAD = (Result.FAILED, Result.TIMED_OUT, Result.CRASHED)


def format_names(names: Sequence[str], most: int = NAMES) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:80] for name in names[:most]) + more


def ready_fields(worker_id: int, settings: WorkerSettings, registration: Registration, database: str) -> dict[str, Any]:
    """Return the fields of the line which says that the worker takes runs."""
    tasks = {"app": registration.app, "tasks": format_names(registration.tasks)} if registration.tasks else {}
    return tasks | {
        "kinds": ", ".join(registration.kinds), "queues": format_names(registration.queues or []) or "all",
        "concurrency": settings.concurrency, "database": database, "worker": registration.name, "id": worker_id,
    }  # fmt: skip


def format_running(attempts: Sequence[RunningAttempt]) -> str:
    """Return the names of the running attempts, for people."""
    return format_names([f"{one.claim.task[:80]} (run {one.claim.id})" for one in attempts])


async def log_running_attempts(attempts: Callable[[], Sequence[RunningAttempt]]) -> None:
    """Log every few seconds what a draining worker waits for."""
    while True:
        await asyncio.sleep(EVERY_S)
        if found := attempts():
            logger.info("still running", running=len(found), runs=format_running(found), hint=HURRY)


def log_attempt_end(outcome: Outcome, **fields: Any) -> None:
    """Log an attempt that did not succeed: a failure as a warning, an end that was asked for as information."""
    tell = logger.warning if outcome.result in BAD else logger.info
    tell("attempt ended", outcome=str(outcome.result), error=(outcome.error or "")[:200], **fields)


def log_dead_runs(batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
    """Log the runs that have failed for good, as errors."""
    for one, verdict in zip(batch, verdicts, strict=False):
        if verdict == "dead":
            logger.error("run is dead", run=one.id, task=one.task[:80], attempt=one.attempt, state=verdict,
                         error=(one.outcome.error or "")[:200], more=f"pgsched run show {one.id}")  # fmt: skip
