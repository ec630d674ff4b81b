"""Graphs, batches and batched handlers on a real worker with a leader beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched import App, Item, Run
from pgsched.config import LeaderSettings, WorkerSettings
from pgsched.db.queries.runs import workers
from pgsched.execute.python.executor import PythonExecutor
from pgsched.leader.election import Leader
from pgsched.worker.worker import Worker
from tests.support.workers import becomes, play

pytestmark = pytest.mark.packages


def serve(app: App, dsn: str, until: Callable[[], Any], grace_s: float = 5) -> None:
    """Run a worker and a leader until the condition holds."""
    app.dsn = dsn
    settings = WorkerSettings(concurrency=2, lease_s=30, poll_s=0.1, grace_s=grace_s, leader=False)
    registration = workers.Registration("w", "0", None, 2, None, ["task"], sorted(app.tasks), 30)
    worker = Worker(dsn, settings, {"task": PythonExecutor(app.tasks, 2, app)}, registration)
    leader = Leader(dsn, LeaderSettings(), "l", on_fatal=lambda error: pytest.fail(str(error)))
    thread = threading.Thread(target=leader.run, daemon=True)

    async def scene() -> None:
        thread.start()
        work = asyncio.create_task(worker.run())
        await becomes(until, "the end of the scene")
        worker.stop()
        await work

    try:
        play(scene)
    finally:
        leader.stop()
        thread.join(10)
        app.close()


def ended(db: psycopg.Connection) -> bool:
    return db.execute("SELECT count(*) FROM pgsched.runs WHERE phase < 3").fetchone() == (0,)


def test_a_callback_reads_the_results_of_its_batch(dsn: str, db: psycopg.Connection) -> None:
    app = App("graphs", dsn=dsn)

    @app.task(name="part", max_attempts=1)
    async def part(n: int) -> int:
        if n == 3:
            raise ValueError("no")
        return n * n

    @app.task(name="total")
    def total(run: Run) -> list[Any]:
        return [sum(run.results()), [parent.state for parent in run.parents()]]

    @app.task(name="total_async")
    async def total_async(run: Run) -> int:
        return sum(await run.results_async())

    batch = app.batch(total)
    for n in range(5):
        batch.add(part, n)
    ids = batch.enqueue()
    total_async.options(after=ids, on_failure="run_anyway").enqueue()
    serve(app, dsn, lambda: ended(db))
    assert batch.callback is not None
    found = db.execute("SELECT result FROM pgsched.runs WHERE id > %s ORDER BY id", [ids[-1]]).fetchall()
    states = ["succeeded", "succeeded", "succeeded", "dead", "succeeded"]
    assert found == [([0 + 1 + 4 + 16, states],), (21,)]
    assert (batch.counts().done, batch.counts().failed) == (5, 1)
    app.close()


def test_a_batched_handler_serves_many_runs_at_once_and_each_is_settled(dsn: str, db: psycopg.Connection) -> None:
    app = App("batches", dsn=dsn)
    calls: list[int] = []

    @app.task(name="many", batch=50, batch_wait=0.2, max_attempts=1)
    def many(items: list[Item]) -> list[Any]:
        calls.append(len(items))
        return [ValueError("odd") if item["n"] % 10 == 0 else item["n"] for item in items]

    assert many.enqueue_many({"n": n} for n in range(200)) == 200
    serve(app, dsn, lambda: ended(db))
    assert sum(calls) == 200
    assert max(calls) <= 50
    assert max(calls) > 2  # more than the worker's concurrency
    found = db.execute("SELECT state, count(*), count(result) FROM pgsched.runs GROUP BY 1 ORDER BY 1").fetchall()
    assert found == [("dead", 20, 0), ("succeeded", 180, 180)]


def test_a_stopping_worker_keeps_its_runs_while_a_call_works_on_them(dsn: str, db: psycopg.Connection) -> None:
    app = App("batches", dsn=dsn)
    called = threading.Event()
    beside: list[Any] = []

    @app.task(name="many", batch=3, batch_wait=5)
    async def many(items: list[Item]) -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)
            count = "SELECT count(*) FROM pgsched.runs WHERE state = 'running'"
            beside.append(await asyncio.to_thread(lambda: db.execute(count).fetchone()))
            items[0].done("paid")

    many.enqueue_many({"n": n} for n in range(3))
    serve(app, dsn, called.is_set, grace_s=0)
    assert beside == [(3,)]
    found = db.execute("SELECT state, count(*), max(result::text) FROM pgsched.runs GROUP BY 1 ORDER BY 1").fetchall()
    assert found == [("queued", 2, None), ("succeeded", 1, '"paid"')]
