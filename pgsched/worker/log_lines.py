"""The log lines about a worker as a whole: what it serves, and what still runs while it drains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pgsched import log
from pgsched.config import WorkerSettings
from pgsched.db.queries.runs.workers import Registration
from pgsched.worker.attempts.attempt import RunningAttempt

logger = log.get("worker")
NAMES = 8
EVERY_S = 5.0
HURRY = "a second Ctrl-C or SIGTERM stops them now"


def format_names(names: Sequence[str], most: int = NAMES) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:80] for name in names[:most]) + more


def ready_fields(worker_id: int, settings: WorkerSettings, registration: Registration, database: str) -> dict[str, Any]:
    """Return the fields of the line which says that the worker takes runs."""
    tasks = {"app": registration.app, "tasks": format_names(registration.tasks)} if registration.tasks else {}
    found = tasks | {
        "kinds": ", ".join(registration.kinds), "queues": format_names(registration.queues or []) or "all",
        "concurrency": settings.concurrency, "database": database, "worker": registration.name, "id": worker_id,
    }  # fmt: skip
    app = f"app {registration.app} with {found['tasks']}; " if registration.tasks else ""
    kinds = "" if app and registration.kinds == ["task"] else f"kinds: {found['kinds']}; "
    plain = (
        f"started: {app}{kinds}queues: {found['queues']}; {settings.concurrency} at a time; database {database};"
        f" worker {worker_id}, {registration.name}"
    )
    return found | {log.PLAIN: plain}


def drain_fields(attempts: Sequence[RunningAttempt], grace_s: float, hint: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of the line which says that the worker takes no more runs; `hint` says how to hurry."""
    found = {"running": len(attempts), "grace_s": grace_s}
    if not attempts:
        return found | {log.PLAIN: "draining: nothing runs"}
    runs = format_running(attempts)
    plain = "; ".join([f"draining: up to {grace_s:g} s for {runs}", *hint.values()])
    return found | {"runs": runs, **hint, log.PLAIN: plain}


def stop_fields(name: str, verdicts: Mapping[str, int]) -> dict[str, Any]:
    """Return the fields of a worker's last line."""
    ended = ", ".join(f"{count:,} {state}" for state, count in verdicts.items()) or "it ran nothing"
    return {"worker": name, **verdicts, log.PLAIN: f"stopped: {ended}"}


def format_running(attempts: Sequence[RunningAttempt]) -> str:
    """Return the names of the running attempts, for people."""
    return format_names([f"{one.claim.task[:80]} (run {one.claim.id})" for one in attempts])


async def log_running_attempts(attempts: Callable[[], Sequence[RunningAttempt]], hint: Mapping[str, str]) -> None:
    """Log every few seconds what a draining worker waits for; `hint`: fields that say how to hurry."""
    while True:
        await asyncio.sleep(EVERY_S)
        if found := attempts():
            runs = format_running(found)
            plain = "; ".join([f"still running: {runs}", *hint.values()])
            logger.info("still running", running=len(found), runs=runs, **hint, **{log.PLAIN: plain})
