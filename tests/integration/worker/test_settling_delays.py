"""What delays the settlement of one run is logged correctly, and delays no other settlement."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.support.db.setting import Open, add_runs
from tests.support.workers import Handler, becomes, make, play


def test_the_log_names_the_reason_for_a_delayed_settlement(
    dsn: str, db: psycopg.Connection, connect: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """A user's trigger waits for a lock on another table; no transaction has locked the run."""
    add_runs(db, 3)
    db.execute("CREATE TABLE public.mine (n int)")
    db.execute("CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS"
               " $$ BEGIN LOCK TABLE public.mine; RETURN NEW; END $$")  # fmt: skip
    db.execute("CREATE TRIGGER wait BEFORE UPDATE ON pgsched.runs FOR EACH ROW"
               " WHEN (NEW.id = 2 AND NEW.state = 'succeeded') EXECUTE FUNCTION public.wait()")  # fmt: skip
    person = connect(autocommit=False)
    person.execute("LOCK TABLE public.mine")

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.verdicts.get("succeeded") == 2, "the other settlements")
        await becomes(lambda: "settling later" in caplog.text, "the warning")
        (line,) = (line for line in caplog.text.splitlines() if "settling later" in line)
        assert "run=2" in line and "lock timeout" in line and "locked the run" not in line
        person.rollback()
        await becomes(lambda: worker.verdicts.get("succeeded") == 3, "the last settlement")
        worker.stop()
        await work

    play(scene)


def test_the_outcome_of_a_lone_run_waits_for_no_other(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        worker = make(dsn, handler, settle_wait_s=3600.0)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.verdicts.get("succeeded") == 1, "its settlement")
        worker.stop()
        await work

    play(scene)
