"""Run a worker in the test's own process until a condition holds."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """Run a worker until the condition holds, then let the worker drain. The condition is called in a thread."""

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


@contextmanager
def at_work(dsn: str, app: App, **more: Any) -> Iterator[None]:
    """Run a worker in a thread during the block."""
    begun = threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, Worker]] = []

    async def main() -> None:
        worker = make_worker(Settings(dsn, settings(**more)), app)
        loops.append((asyncio.get_running_loop(), worker))
        begun.set()
        await worker.run()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert begun.wait(20)
    try:
        yield
    finally:
        ((loop, worker),) = loops
        loop.call_soon_threadsafe(worker.stop)
        thread.join(20)
        assert not thread.is_alive()


def all_ended(db: psycopg.Connection) -> bool:
    return db.execute(ENDED.encode()).fetchone() == (True,)


def add(db: psycopg.Connection, kind: str, task: str, args: Any = None, **columns: Any) -> int:
    """Add a run of any kind; return its id."""
    names = "".join(f", {name}" for name in columns)
    row = db.execute(
        f"INSERT INTO pgsched.runs (kind, task, args, max_attempts{names})"
        f" VALUES (%s, %s, %s, 1{', %s' * len(columns)}) RETURNING id".encode(),
        [kind, task, Jsonb({} if args is None else args), *columns.values()],
    ).fetchone()
    assert row is not None
    return int(row[0])


def output(db: psycopg.Connection, run_id: int, stream: str | None = None) -> str:
    """Return all output that is kept of a run."""
    rows = db.execute(
        "SELECT chunk FROM pgsched.run_logs WHERE run_id = %s AND (%s::text IS NULL OR stream = %s)"
        " ORDER BY attempt, seq",
        [run_id, stream, stream],
    )
    return "".join(row[0] for row in rows)
