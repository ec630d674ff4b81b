"""A worker that is asked to drain claims nothing more, finishes its runs, and ends."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from pgsched.config import Settings
from pgsched.db.queries.runs import workers
from pgsched.errors import NotFound
from pgsched.worker.process import make_worker
from tests.support.waiting import wait_until
from tests.support.working import add, settings


def test_a_worker_that_is_asked_to_drain_finishes_its_runs_and_ends(dsn: str, db: psycopg.Connection) -> None:
    first = add(db, "shell", "sleep 2")

    def started() -> bool:
        return db.execute("SELECT state FROM pgsched.runs WHERE id = %s", [first]).fetchone() == ("running",)

    async def main() -> None:
        worker = make_worker(Settings(dsn, settings(lease_s=1.0, grace_s=30)), None)
        working = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, started, 30, "the run to start")
        row = db.execute("SELECT id FROM pgsched.workers").fetchone()
        assert row is not None
        workers.drain(db, row[0], "ada")
        await asyncio.wait_for(working, 60)

    asyncio.run(main())
    late = add(db, "shell", "true")
    states = db.execute("SELECT state FROM pgsched.runs WHERE id IN (%s, %s) ORDER BY id", [first, late]).fetchall()
    assert states == [("succeeded",), ("queued",)]
    asked = "SELECT drain_asked_by, stopped_at IS NOT NULL FROM pgsched.workers"
    assert db.execute(asked).fetchall() == [("ada", True)]


def test_only_a_registered_worker_can_be_asked_to_drain(db: psycopg.Connection) -> None:
    for wrong in (0, 4711, 2**70):
        with pytest.raises(NotFound):
            workers.drain(db, wrong)
