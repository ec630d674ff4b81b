"""What delays the settlement of one run is said as it is, and delays no other."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.support.db.setting import Open, add_runs
from tests.support.workers import Handler, becomes, make, play


def test_what_delays_a_settlement_is_said(
    dsn: str, db: psycopg.Connection, connect: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trigger of somebody's waits for a lock of another table: nobody has locked the run."""
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
        said = list[str]()
        await becomes(lambda: said.extend(capsys.readouterr()) or "settling later" in "".join(said), "the warning")
        (line,) = (line for line in "".join(said).splitlines() if "settling later" in line)
        assert "run=2" in line and "lock timeout" in line and "locked the run" not in line
        person.rollback()
        await becomes(lambda: worker.verdicts.get("succeeded") == 3, "the last settlement")
        worker.stop()
        await work

    play(scene)
