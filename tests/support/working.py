"""A worker in the test's own process, for as long as a condition takes to hold."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pgsched import App
from pgsched.config import Settings, WorkerSettings
from pgsched.core.model import Kind
from pgsched.worker.process import make_worker
from pgsched.worker.worker import Worker
from tests.support.waiting import wait_until

CAP = 1 << 20
LEFT_OUT = re.compile(r"\[\.\.\. ([\d,]+) bytes in ([\d,]+) lines are left out \.\.\.\]\n")

ENDED = "SELECT count(*) = 0 FROM pgsched.runs WHERE finished_at IS NULL"


def settings(**more: Any) -> WorkerSettings:
    given = {"concurrency": 4, "poll_s": 0.1, "grace_s": 0, "leader": False, "allow": frozenset(Kind)} | more
    return WorkerSettings(**given)


def work(dsn: str, app: App | None, until: Callable[[], object], timeout: float = 60.0, **more: Any) -> Worker:
    """Run a worker until the condition, which is looked at in a thread, holds; then let it drain."""

    async def main() -> Worker:
        worker = make_worker(Settings(dsn, settings(**more)), app)
        working = asyncio.create_task(worker.run())
        try:
            await asyncio.to_thread(wait_until, lambda: until() or working.done(), timeout, "the work to be done")
        finally:
            worker.stop()
            await working
        return worker

    return asyncio.run(main())


def all_ended(db: psycopg.Connection) -> bool:
    return db.execute(ENDED.encode()).fetchone() == (True,)


def add(db: psycopg.Connection, kind: str, task: str, args: Any = None, **columns: Any) -> int:
    """A run of any kind; its id."""
    names = "".join(f", {name}" for name in columns)
    row = db.execute(
        f"INSERT INTO pgsched.runs (kind, task, args, max_attempts{names})"
        f" VALUES (%s, %s, %s, 1{', %s' * len(columns)}) RETURNING id".encode(),
        [kind, task, Jsonb({} if args is None else args), *columns.values()],
    ).fetchone()
    assert row is not None
    return int(row[0])


def output(db: psycopg.Connection, run_id: int, stream: str | None = None) -> str:
    """All that is kept of a run's output."""
    rows = db.execute(
        "SELECT chunk FROM pgsched.run_logs WHERE run_id = %s AND (%s::text IS NULL OR stream = %s)"
        " ORDER BY attempt, seq",
        [run_id, stream, stream],
    )
    return "".join(row[0] for row in rows)
