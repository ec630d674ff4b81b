"""A worker in the test's own process that runs the handlers of tests/support/apps/contract.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pgsched.app.base import import_app
from pgsched.config import WorkerSettings
from pgsched.db.queries.runs import workers
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker.worker import Worker
from tests.support.db.setting import row_of
from tests.support.workers import becomes, play

app = import_app("tests.support.apps.contract:app")
PLACES = ("loop", "thread", "process")


def add(db: psycopg.Connection, task: str, **args: Any) -> int:
    row = db.execute("SELECT pgsched.enqueue(%s, %s)", [task, Jsonb(args)]).fetchone()
    assert row is not None
    return int(row[0])


def serve(
    dsn: str, until: Callable[[], Any], meanwhile: Callable[[], Any] = lambda: None, lease_s: float = 30
) -> Worker:
    """Run a worker with the app's handlers until the condition holds. `meanwhile` is called in a thread beside it."""
    settings = WorkerSettings(concurrency=2, lease_s=lease_s, poll_s=0.1, grace_s=0, leader=False)
    names = sorted(app.tasks)
    registration = workers.Registration("w", "0", None, 2, None, ["task"], names, lease_s)
    worker = Worker(dsn, settings, {"task": PythonExecutor(app.tasks, 2, app)}, registration)

    async def scene() -> None:
        work = asyncio.create_task(worker.run())
        await asyncio.to_thread(meanwhile)
        await becomes(until, "the end of the scene")
        worker.stop()
        await work

    play(scene)
    return worker


def state(db: psycopg.Connection, run_id: int) -> str:
    return str(row_of(db, run_id)["state"])


def written(db: psycopg.Connection) -> list[str]:
    return [what for (what,) in db.execute("SELECT what FROM public.written ORDER BY what").fetchall()]
