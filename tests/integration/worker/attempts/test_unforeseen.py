"""An unforeseen server error says nothing about the work: the statement is repeated, and no outcome is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Claim, Result, Settlement
from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.connection.failures import Reaction, classify
from pgsched.db.queries.runs import claims, run_output
from pgsched.errors import PgschedError
from pgsched.worker import output as pumping
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import queue_claims
from pgsched.worker.settling import settler as settling
from pgsched.worker.worker import Worker
from tests.support.db.setting import add_runs, row_of
from tests.support.workers import Handler, becomes, make, play
from tests.support.working import add, all_ended, output, work

# an I/O error, a bug in the server, a statement that a pooler's session no longer has, two codes of other classes
CODES = ["58030", "XX000", "26000", "0A000", "HV000"]


def error_of(code: str | None) -> psycopg.Error:
    """Return an error with this code, as psycopg raises it."""
    error = psycopg.DatabaseError(f"it failed with {code}")
    error.sqlstate = code
    return error


class Failing:
    """A call that fails `times` times and then does its work; `when` chooses the calls that may fail."""

    def __init__(
        self,
        real: Callable[..., Awaitable[Any]],
        code: str | None,
        times: int,
        when: Callable[..., Any] = lambda *_: True,
    ) -> None:
        self.real, self.code, self.left, self.when = real, code, times, when

    async def __call__(self, *args: Any, **more: Any) -> Any:
        if self.left > 0 and self.when(*args):
            self.left -= 1
            raise error_of(self.code)
        return await self.real(*args, **more)


async def ended(worker: Worker, handler: Handler, done: Callable[[], Any]) -> None:
    """Run the worker until `done()` is true."""
    handler.go.set()
    work = asyncio.create_task(worker.run())
    await becomes(done, "the end")
    worker.stop()
    await work


@pytest.mark.parametrize("code", [*CODES, None])
def test_a_success_that_the_server_failed_to_store_once_stays_a_success(
    code: str | None, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "settle", Failing(claims.settle, code, 1))
    add_runs(db, 1)

    async def scene() -> None:
        worker = make(dsn, handler := Handler())
        await ended(worker, handler, lambda: worker.verdicts)
        assert worker.verdicts == {"succeeded": 1}

    play(scene)
    assert row_of(db, 1)["state"] == "succeeded"


def test_a_success_is_kept_if_a_transaction_timeout_ends_its_settlement(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if db.info.server_version < 170000:
        pytest.skip("there is no transaction_timeout before PostgreSQL 17")
    found: list[BaseException] = []

    async def stalled(conn: AsyncConnection[Any], batch: Sequence[Settlement], worker: str) -> list[str]:
        if not found:
            await conn.execute("SET transaction_timeout = '100ms'")
            try:
                await conn.execute("SELECT pg_sleep(5)")
            except psycopg.Error as error:
                found.append(error)
                raise
        return await claims.settle(conn, batch, worker)

    monkeypatch.setattr(settling, "settle", stalled)
    add_runs(db, 1)

    async def scene() -> None:
        worker = make(dsn, handler := Handler())
        await ended(worker, handler, lambda: worker.verdicts)

    play(scene)
    assert row_of(db, 1)["state"] == "succeeded"
    assert classify(found[0]) is Reaction.RECONNECT


def test_an_outcome_that_meets_an_unforeseen_error_delays_no_other_outcome(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is not recorded as failed. Its worker ends with the error; after the lease another worker may succeed."""

    def among(conn: AsyncConnection[Any], batch: Sequence[Settlement], worker: str) -> bool:
        return any(one.id == 2 and one.outcome.result is Result.SUCCEEDED for one in batch)

    monkeypatch.setattr(settling, "settle", Failing(claims.settle, "XX001", 1000, among))
    monkeypatch.setattr(settling, "UNFORESEEN", 2)
    add_runs(db, 3)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler, concurrency=3)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: len(handler.begun) == 3, "all starts")
        handler.go.set()
        with pytest.raises(PgschedError, match="failed with XX001"):
            await work
        assert worker.verdicts == {"succeeded": 2, "lost": 1}

    play(scene)
    assert [row_of(db, run)["state"] for run in (1, 2, 3)] == ["succeeded", "running", "succeeded"]
    assert row_of(db, 2)["lease_until"] is not None, "the leader takes it back"


@pytest.mark.few(2)
@pytest.mark.parametrize("code", [*CODES, "25P04", None])
def test_a_temporary_error_does_not_end_a_worker_that_claims(
    code: str | None, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_claims, "claim", Failing(claims.claim, code, 2))
    add_runs(db, 1)

    async def scene() -> None:
        worker = make(dsn, handler := Handler())
        await ended(worker, handler, lambda: worker.verdicts)
        assert worker.verdicts == {"succeeded": 1}

    play(scene)


def test_a_lasting_error_ends_a_worker_that_claims(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_claims, "claim", Failing(claims.claim, "XX000", 1000))
    monkeypatch.setattr(claiming, "UNFORESEEN", 2)
    add_runs(db, 1)

    async def scene() -> None:
        with pytest.raises(PgschedError, match="failed with XX000"):
            await make(dsn, Handler()).run()

    play(scene)


def test_a_claim_that_was_made_although_the_server_failed_is_not_lost(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker cannot know whether the claim was made, so it asks for the claim by its token."""
    failed: list[int] = []

    async def made(*args: Any) -> list[Claim]:
        found = await claims.claim(*args)
        if found and not failed:
            failed.append(len(found))
            raise error_of("58030")
        return found

    monkeypatch.setattr(queue_claims, "claim", made)
    add_runs(db, 1)

    async def scene() -> None:
        worker = make(dsn, handler := Handler())
        await ended(worker, handler, lambda: worker.verdicts)

    play(scene)
    assert (row_of(db, 1)["state"], row_of(db, 1)["attempt"]) == ("succeeded", 1)


@pytest.mark.parametrize("code", ["58030", "25P04"])
def test_output_survives_a_temporary_error(
    code: str, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumping, "write_pages", Failing(run_output.write_pages, code, 1))
    run_id = add(db, "shell", "echo hello")
    work(dsn, None, lambda: all_ended(db))
    assert output(db, run_id) == "hello\n"
