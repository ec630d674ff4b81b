"""No run is overlooked: after a lost answer, behind the cursor, claimed ahead of a slow run, or not notified."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from pgsched.config import WorkerSettings
from pgsched.core.model import Claim
from pgsched.db.connection.connect import AsyncConnection
from pgsched.worker.attempts import capacity
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import cursor as cursors
from pgsched.worker.claiming import discovery, queue_claims, recovery
from pgsched.worker.claiming import polling as resting
from pgsched.worker.claiming.cursor import Cursor
from pgsched.worker.worker import Worker
from tests.support.db.setting import Open, add_runs, row_of
from tests.support.workers import Claiming, Handler, becomes, make, play, registration


@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_whose_answer_was_lost_is_asked_for_again(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the run would stay claimed until its lease ends, and no worker would make its attempt."""
    real: Claiming = queue_claims.claim
    lost: list[Claim] = []

    async def lose_the_first(conn: AsyncConnection[Any], *args: Any) -> list[Claim]:
        found = await real(conn, *args)
        if found and not lost:
            lost.extend(found)
            raise psycopg.OperationalError("the connection is lost")
        return found

    async def nothing(*_: object) -> list[Claim]:
        return []

    monkeypatch.setattr(queue_claims, "claim", lose_the_first)
    if not guarded:
        monkeypatch.setattr(recovery, "claim_unconfirmed", nothing)
    add_runs(db, 1)
    handler = Handler()
    handler.go.set()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        if guarded:
            await becomes(lambda: handler.begun, "the lost claim to begin")
        else:
            await becomes(lambda: lost, "the claim to be lost")
            add_runs(db, 1)  # the claimer goes on with other work
            await becomes(lambda: handler.begun, "another claim to begin")
        worker.stop()
        await work

    play(scene)
    (claim,) = lost
    assert ([begun.id for begun in handler.begun] == [claim.id]) is guarded
    assert (row_of(db, claim.id)["state"] == "succeeded") is guarded


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_commits_behind_the_claim_cursor_is_found(
    guarded: bool, dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of the run is smaller than the last claimed key: only a scan from the start finds the run."""
    if not guarded:
        monkeypatch.setattr(Cursor, "full_in", lambda *_: 60.0)
        monkeypatch.setattr(cursors, "EVERY_S", 60.0)
        monkeypatch.setattr(cursors, "QUICK_S", -1.0)
    late = connect(autocommit=False)
    late.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    add_runs(db, 3)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.verdicts.get("succeeded") == 3, "the runs before")
        late.commit()
        await asyncio.to_thread(add_runs, db, 1)  # claims go on from the cursor
        await becomes(lambda: worker.verdicts.get("succeeded", 0) >= (5 if guarded else 4), "the claims to go on")
        worker.stop()
        await work

    play(scene)
    assert row_of(db, 1)["state"] == ("succeeded" if guarded else "queued")


@pytest.mark.parametrize("guarded", [True, False])
def test_runs_claimed_ahead_of_a_slow_run_go_to_a_worker_that_is_free(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(capacity, "PARKED_S", 60.0)
    add_runs(db, 50)

    async def scene() -> None:
        slow, free = Handler(), Handler()
        slow.go.set()
        free.go.set()
        settings = WorkerSettings(concurrency=1, lease_s=30, poll_s=0.1, grace_s=0, leader=False)
        first, second = (Worker(dsn, settings, {"task": handler}, registration(30)) for handler in (slow, free))
        work = [asyncio.create_task(first.run())]
        await becomes(lambda: first.verdicts.get("succeeded") == 50, "quick work, so that it claims ahead")
        slow.go.clear()
        await asyncio.to_thread(add_runs, db, 20)
        await becomes(lambda: len(slow.begun) == 51, "the slow run")
        work.append(asyncio.create_task(second.run()))
        if guarded:
            await becomes(lambda: second.verdicts.get("succeeded") == 19, "the others to be run elsewhere")
        else:
            await becomes(lambda: db.execute("SELECT FROM pgsched.workers").rowcount == 2, "the second worker")
            await asyncio.sleep(1)
            busy = "SELECT FROM pgsched.runs WHERE state = 'running' AND worker_id = %s"
            held = db.execute(busy, [first.heartbeat.worker_id]).rowcount
            assert held > 1, "the busy one keeps what it has claimed ahead"
            assert second.verdicts.get("succeeded", 0) <= 20 - held, "and the free one cannot have it"
        slow.go.set()
        first.stop()
        second.stop()
        await asyncio.gather(*work)

    play(scene)


@pytest.mark.few(1)
@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_without_a_notification_is_found_long_before_the_poll(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(resting, "FIRST_LOOK_S", 300.0)
    listens, really = asyncio.Event(), claiming.Claimer.hint

    def hint(claimer: claiming.Claimer, queue: str | None) -> None:
        really(claimer, queue)
        listens.set()

    said, ask = set[str](), discovery.claimable_queues

    async def noted(conn: Any, wanted: Any, asleep_s: float | None, **options: Any) -> Any:
        found = await ask(conn, wanted, asleep_s, **options)
        if listens.is_set():
            said.update({"asleep"} if asleep_s is not None else (), {"looked"} if options["look"] else ())
        return found

    monkeypatch.setattr(claiming.Claimer, "hint", hint)
    monkeypatch.setattr(discovery, "claimable_queues", noted)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        settings = WorkerSettings(concurrency=2, lease_s=30, poll_s=300, grace_s=0, leader=False)
        worker = Worker(dsn, settings, {"task": handler}, registration(30))
        work = asyncio.create_task(worker.run())
        await listens.wait()  # this makes the claimer look and announce its sleep again
        await becomes(lambda: said == {"asleep", "looked"}, "the worker to sleep")
        db.execute("ALTER TABLE pgsched.runs DISABLE TRIGGER a_check_insert")
        await asyncio.to_thread(add_runs, db, 1)
        if guarded:
            await becomes(lambda: worker.verdicts.get("succeeded") == 1, "the run to be found", within_s=30.0)
        else:
            await asyncio.sleep(3)
            assert handler.begun == []
        worker.stop()
        await work

    play(scene)
