"""A worker in this process: a stop while an answer is on its way, lost claims, locked rows, and a slow database."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import UUID

import psycopg
import pytest

from pgsched.config import WorkerSettings
from pgsched.core.model import Claim, Outcome, Result
from pgsched.db.connection.connect import AsyncConnection
from pgsched.worker import heartbeat as heartbeat_module
from pgsched.worker.attempts import prefetch
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import queue_claims
from pgsched.worker.leases import Leases
from pgsched.worker.settling import settlement_queue
from pgsched.worker.settling import settler as settling
from pgsched.worker.worker import Worker
from tests.support.db.setting import Open, add_runs, row_of
from tests.support.workers import Claiming, Handler, becomes, make, play, registration


def withhold_answers(monkeypatch: pytest.MonkeyPatch, arrived: threading.Event) -> None:
    """Let claims be made in the database, but withhold their answers."""
    real: Claiming = queue_claims.claim

    async def held_up(conn: AsyncConnection[Any], *args: Any) -> list[Claim]:
        found = await real(conn, *args)
        if found:
            arrived.set()
            await asyncio.Event().wait()
        return found

    monkeypatch.setattr(queue_claims, "claim", held_up)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_whose_answer_is_on_its_way_at_the_stop_is_handed_back(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 2)
    arrived = threading.Event()
    withhold_answers(monkeypatch, arrived)
    if not guarded:

        async def disconnect_only(self: claiming.Claimer) -> None:
            await self._disconnect()

        monkeypatch.setattr(claiming.Claimer, "close", disconnect_only)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(arrived.is_set, "the claim to be made")
        worker.stop()
        await work
        assert handler.begun == []

    play(scene)
    rows = db.execute("SELECT DISTINCT state, attempt FROM pgsched.runs").fetchall()
    assert rows == ([("queued", 0)] if guarded else [("running", 1)])


def test_claims_that_arrive_after_the_stop_are_not_started(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Claiming = queue_claims.claim
    stopped, made = asyncio.Event(), threading.Event()

    async def slow(conn: AsyncConnection[Any], *args: Any) -> list[Claim]:
        found = await real(conn, *args)
        if found:
            made.set()
            await stopped.wait()
        return found

    monkeypatch.setattr(queue_claims, "claim", slow)
    add_runs(db, 2)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(made.is_set, "the claim to be made")
        worker.stop()
        stopped.set()
        await work
        assert handler.begun == []

    play(scene)
    assert db.execute("SELECT DISTINCT state, attempt FROM pgsched.runs").fetchall() == [("queued", 0)]


def test_a_lost_notification_costs_no_more_than_a_poll(dsn: str, db: psycopg.Connection) -> None:
    db.execute("UPDATE pg_trigger SET tgenabled = 'D' WHERE tgname = 'a_check_insert'")

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: db.execute("SELECT FROM pgsched.workers").rowcount, "the worker")
        await asyncio.to_thread(add_runs, db, 5)
        await becomes(lambda: worker.verdicts.get("succeeded") == 5, "all runs")
        worker.stop()
        await work

    play(scene)


def test_a_claim_that_was_reaped_stops_its_handler_and_settles_nothing(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.begun, "the start")
        await asyncio.to_thread(db.execute, "UPDATE pgsched.runs SET token = gen_random_uuid(), worker_id = 99")
        before = await asyncio.to_thread(row_of, db, 1)
        await becomes(lambda: handler.cancelled, "the handler to be stopped")
        worker.stop()
        await work
        assert worker.verdicts == {}
        assert {**row_of(db, 1), "lease_until": None} == {**before, "lease_until": None}

    play(scene)


def test_a_lease_that_cannot_be_renewed_stops_the_handler_before_it_ends(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("no answer")

    monkeypatch.setattr(heartbeat_module, "heartbeat", no_answer)
    found: list[Any] = []
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        still_ours = "SELECT lease_until > clock_timestamp() FROM pgsched.runs WHERE state = 'running'"
        handler.on_cancel = lambda: found.append(db.execute(still_ours).fetchone())
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.cancelled, "the handler to be stopped")
        worker.stop()
        await work

    play(scene)
    assert found[0] == (True,), "nobody else could own the run yet"
    outcome = db.execute("SELECT DISTINCT outcome, error FROM pgsched.attempts WHERE attempt = 1").fetchall()
    assert ("interrupted", "handed back: the lease could not be renewed in time") in outcome


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Result.FAILED, error="a NUL: \0"),
        Outcome(Result.SUCCEEDED, value={"text": "\0"}),
        Outcome(Result.SUCCEEDED, value=object()),
    ],
    ids=["nul", "nul in JSON", "no JSON"],
)
def test_an_outcome_that_cannot_be_stored_is_a_failure(outcome: Outcome, dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler(outcome)
        handler.go.set()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.verdicts, "the settlement")
        worker.stop()
        await work
        assert worker.verdicts == {"dead": 1}

    play(scene)
    assert row_of(db, 1)["state"] == "dead"
    assert "outcome could not be stored" in row_of(db, 1)["error"]


@pytest.mark.few(1)
@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_whose_answer_came_after_its_lease_is_not_started(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Claiming = queue_claims.claim
    late: list[UUID] = []

    async def slow(conn: AsyncConnection[Any], *args: Any) -> list[Claim]:
        found = await real(conn, *args)
        if found and not late:
            over = "SELECT bool_and(lease_until < clock_timestamp()) FROM pgsched.runs"
            await becomes(lambda: db.execute(over).fetchone() == (True,), "the end of the lease")
            late.append(found[0].token)
        return found

    monkeypatch.setattr(queue_claims, "claim", slow)
    if not guarded:
        monkeypatch.setattr(Leases, "past", lambda *_: False)
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        settings = WorkerSettings(concurrency=2, lease_s=1, poll_s=0.1, grace_s=0, leader=False)
        worker = Worker(dsn, settings, {"task": handler}, registration(1))
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.begun, "a start")
        given_back = handler.begun[0].token not in late
        assert given_back is guarded, "the first claim was handed back before anything was started"
        worker.stop()
        await work

    play(scene)


def test_a_locked_row_delays_no_other_settlement(dsn: str, db: psycopg.Connection, connect: Open) -> None:
    add_runs(db, 40)
    person = connect(autocommit=False)

    async def scene() -> None:
        handler = Handler()
        settings = WorkerSettings(concurrency=40, lease_s=30, poll_s=0.1, grace_s=5, leader=False)
        worker = Worker(dsn, settings, {"task": handler}, registration(30))
        work = asyncio.create_task(worker.run())
        await becomes(lambda: len(handler.begun) == 40, "all starts")
        await asyncio.to_thread(person.execute, "SELECT pgsched.cancel(7)")  # its transaction stays open
        handler.go.set()
        await becomes(lambda: worker.verdicts.get("succeeded") == 39, "the other settlements")
        assert (await asyncio.to_thread(row_of, db, 7))["state"] == "running"
        person.rollback()
        await becomes(lambda: worker.verdicts.get("succeeded") == 40, "the last settlement")
        worker.stop()
        await work

    play(scene)


def test_rows_that_stay_locked_delay_no_later_settlement(
    dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each locked row is tried again before the other one has given up, so a retry is always due."""
    monkeypatch.setattr("pgsched.worker.settling.settling_later.LONGEST_S", 0.01)
    add_runs(db, 40)
    person = connect(autocommit=False)

    async def scene() -> None:
        handler = Handler()
        settings = WorkerSettings(concurrency=40, lease_s=30, poll_s=0.1, grace_s=5, leader=False)
        worker = Worker(dsn, settings, {"task": handler}, registration(30))
        work = asyncio.create_task(worker.run())
        await becomes(lambda: len(handler.begun) == 40, "all starts")
        await asyncio.to_thread(person.execute, "SELECT pgsched.cancel(id) FROM pgsched.runs WHERE id IN (7, 8)")
        handler.go.set()
        await becomes(lambda: worker.verdicts.get("succeeded") == 38, "the other settlements")
        await asyncio.to_thread(add_runs, db, 200)
        await becomes(lambda: worker.verdicts.get("succeeded") == 238, "the settlements that came later")
        person.rollback()
        await becomes(lambda: worker.verdicts.get("succeeded") == 240, "the last ones")
        worker.stop()
        await work

    play(scene)


@pytest.mark.few(1)
@pytest.mark.parametrize("guarded", [True, False])
def test_the_number_of_attempts_ahead_of_the_settlements_is_bounded(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash, all of these runs would run again."""
    monkeypatch.setattr(settlement_queue, "BEHIND", 100 if guarded else 1_000_000)
    monkeypatch.setattr(prefetch, "MOST_AHEAD", 200)  # runs claimed ahead are attempted too: on a fast machine, all
    add_runs(db, 2000)
    asked, answers, really = asyncio.Event(), asyncio.Event(), settling.settle

    async def slow(*given: Any) -> list[str]:
        asked.set()
        await answers.wait()
        return await really(*given)

    monkeypatch.setattr(settling, "settle", slow)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        # with such a long poll, the worker must go on as soon as there is room: also when waiting outcomes are taken
        worker = make(dsn, handler, poll_s=30.0, settle_wait_s=0.2)
        work = asyncio.create_task(worker.run())
        if guarded:
            await becomes(
                lambda: asked.is_set() and worker.outcomes.settler.queue.is_behind(0) and worker.runner.is_idle(),
                "nothing more to start",
            )
            assert len(handler.begun) < 1500, "and not all that there is"
        else:
            await becomes(lambda: len(handler.begun) == 2000, "all, with nothing settled")
        answers.set()
        await becomes(lambda: worker.verdicts.get("succeeded") == 2000, "all settlements")
        worker.stop()
        await work

    play(scene)
