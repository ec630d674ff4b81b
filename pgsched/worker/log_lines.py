"""What a worker's log says to whoever watches it: what it serves, what still runs, what was lost for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pgsched import log
from pgsched.config import WorkerSettings
from pgsched.core.model import Outcome, Result, Settlement
from pgsched.db.queries.runs.workers import Registration
from pgsched.worker.attempts.attempt import Running

logger = log.get("worker")
NAMES = 8
EVERY_S = 5.0
HURRY = "a second Ctrl-C or SIGTERM stops them now"
BAD = (Result.FAILED, Result.TIMED_OUT, Result.CRASHED)


def listed(names: Sequence[str], most: int = NAMES) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:80] for name in names[:most]) + more


def ready(worker_id: int, settings: WorkerSettings, registration: Registration, database: str) -> dict[str, Any]:
    """The fields of the line that says that the worker takes runs."""
    tasks = {"app": registration.app, "tasks": listed(registration.tasks)} if registration.tasks else {}
    return tasks | {
        "kinds": ", ".join(registration.kinds), "queues": listed(registration.queues or []) or "all",
        "concurrency": settings.concurrency, "database": database, "worker": registration.name, "id": worker_id,
    }  # fmt: skip


def running(attempts: Sequence[Running]) -> str:
    """The runs that are being made, for people."""
    return listed([f"{one.claim.task[:80]} (run {one.claim.id})" for one in attempts])


async def tell_what_runs(attempts: Callable[[], Sequence[Running]]) -> None:
    """While a worker drains: every few seconds, what it waits for."""
    while True:
        await asyncio.sleep(EVERY_S)
        if found := attempts():
            logger.info("still running", running=len(found), runs=running(found), hint=HURRY)


def ended(outcome: Outcome, **fields: Any) -> None:
    """An attempt that did not succeed: a failure is a warning, what a handler asked for is not."""
    tell = logger.warning if outcome.result in BAD else logger.info
    tell("attempt ended", outcome=str(outcome.result), error=(outcome.error or "")[:200], **fields)


def settled(batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
    """Runs that have failed for good are errors."""
    for one, verdict in zip(batch, verdicts, strict=False):
        if verdict == "dead":
            logger.error("run is dead", run=one.id, task=one.task[:80], attempt=one.attempt, state=verdict,
                         error=(one.outcome.error or "")[:200], more=f"pgsched run show {one.id}")  # fmt: skip
