"""The worker's side of claims ahead: it keeps what it promises, and runs, hands back or asks for what it is given."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched.db.claims import claim_ahead
from pgsched.db.connect import connect as reach
from pgsched.leader.ahead import Offer
from pgsched.model import Claim
from pgsched.worker import claim as claiming
from pgsched.worker.seats import WorkerSeats
from pgsched.worker.worker import Worker
from tests.race.setting import add_runs, row_of
from tests.race.test_worker import Handler, becomes, make, play

Act = Callable[[Worker, WorkerSeats], Any]


async def at_work(db: psycopg.Connection, worker: Worker) -> WorkerSeats:
    """The seats of a worker that has looked for work and found none."""
    await becomes(lambda: worker.seats is not None and worker._claimer.keeps_up(), "the worker to look for work")
    assert worker.seats is not None
    return worker.seats


def claimed(dsn: str, offer: Offer) -> tuple[list[Claim], float]:
    """Runs that are made and claimed by one transaction, as the leader does; and when they were asked for."""
    with reach(dsn) as conn, conn.transaction():
        made = conn.execute(
            "INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 5) RETURNING id"
        ).fetchall()
        sent_at = time.monotonic()
        now = conn.execute("SELECT clock_timestamp()").fetchone()
        assert now is not None
        ids = [row[0] for row in made]
        return claim_ahead(conn, offer.wanted, offer.queues, offer.n, uuid4(), ids, now[0]), sent_at


def test_what_is_given_is_run(dsn: str, db: psycopg.Connection) -> None:
    handler = Handler()
    handler.go.set()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        seats = await at_work(db, worker)
        offer = await asyncio.to_thread(seats.offer, 50)
        assert offer is not None and offer.n == 2, "as much as there is room for"
        claims, sent_at = await asyncio.to_thread(claimed, dsn, offer)
        await asyncio.to_thread(seats.give, claims, sent_at)
        ended = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"
        await becomes(lambda: db.execute(ended).fetchone() == (5,), "those, and what was left")
        assert {claim.id for claim in claims} == {claim.id for claim in handler.begun[:2]}
        worker.stop()
        await work

    play(scene)


@pytest.mark.parametrize("guarded", [True, False])
def test_room_is_promised_once(guarded: bool, dsn: str, db: psycopg.Connection) -> None:
    """What comes by the queue meanwhile may have what is left, and all of it when the offer has ended."""
    handler = Handler()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        seats = await at_work(db, worker)
        assert await asyncio.to_thread(seats.offer, 1) is not None
        if not guarded:
            worker.slots.kept = 0
        add_runs(db, 2)
        await becomes(lambda: handler.begun, "one to begin")
        await asyncio.sleep(0.5)
        assert len(handler.begun) == (1 if guarded else 2)
        second = await asyncio.to_thread(seats.offer, 1)
        assert second is None, "there is no more room"
        seats.give([], 0.0)
        await becomes(lambda: len(handler.begun) == 2, "the other one")
        worker.stop()
        worker.stop()
        await work

    play(scene)


def test_who_has_left_work_behind_offers_nothing(dsn: str, db: psycopg.Connection) -> None:
    """What is due earlier comes first."""
    handler = Handler()
    add_runs(db, 10)

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.begun, "the first to begin")
        assert worker.seats is not None
        worker.slots.concurrency = 50
        assert await asyncio.to_thread(worker.seats.offer, 1) is None
        worker.stop()
        worker.stop()
        await work
        assert await asyncio.to_thread(worker.seats.offer, 1) is None, "it has stopped"

    play(scene)


def test_a_loop_that_is_blocked_offers_nothing(dsn: str, db: psycopg.Connection) -> None:
    """Others may have time for it. What it answers later keeps no room."""

    async def scene() -> None:
        worker = make(dsn, Handler())
        work = asyncio.create_task(worker.run())
        seats = await at_work(db, worker)
        answers: list[Offer | None] = []
        asking = threading.Thread(target=lambda: answers.append(seats.offer(1)))
        asking.start()
        time.sleep(0.3)  # noqa: ASYNC251  the loop does not turn
        assert answers == [None]
        await asyncio.sleep(0.1)
        assert worker.slots.kept == 0
        worker.stop()
        await work

    play(scene)


def test_a_worker_that_stops_waits_for_what_it_was_promised_and_hands_it_back(dsn: str, db: psycopg.Connection) -> None:
    handler = Handler()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        seats = await at_work(db, worker)
        offer = await asyncio.to_thread(seats.offer, 2)
        assert offer is not None
        worker.stop()
        await asyncio.sleep(0.2)
        claims, sent_at = await asyncio.to_thread(claimed, dsn, offer)
        await asyncio.to_thread(seats.give, claims, sent_at)
        await work
        assert len(claims) == 2 and handler.begun == []
        for claim in claims:
            row = row_of(db, claim.id)
            assert (row["state"], row["attempt"]) == ("queued", 0), "it cost no attempt"

    play(scene)


@pytest.mark.parametrize("stopping", [False, True])
def test_what_nobody_knows_of_is_found(stopping: bool, dsn: str, db: psycopg.Connection) -> None:
    handler = Handler()
    handler.go.set()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        seats = await at_work(db, worker)
        offer = await asyncio.to_thread(seats.offer, 2)
        assert offer is not None
        claims, sent_at = await asyncio.to_thread(claimed, dsn, offer)
        if stopping:
            worker.stop()
        seats.unsure(["nothing", "default"], claims[0].token, sent_at)
        if not stopping:
            ended = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded' AND id = ANY(%s)"
            ids = [claim.id for claim in claims]
            await becomes(lambda: db.execute(ended, [ids]).fetchone() == (2,), "those to be run")
            worker.stop()
        await work
        states = {row_of(db, claim.id)["state"] for claim in claims}
        assert states == ({"queued"} if stopping else {"succeeded"})

    play(scene)


def test_it_is_asked_for_also_by_a_worker_that_is_full(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their leases run."""
    asked: list[str] = []

    async def ask(conn: Any, queue: str, token: Any) -> list[Claim]:
        asked.append(queue)
        return []

    monkeypatch.setattr(claiming, "claim_again", ask)
    add_runs(db, 5)
    handler = Handler()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: len(handler.begun) == 2, "the worker to be full")
        assert worker.seats is not None
        worker.seats.unsure(["default"], uuid4(), time.monotonic())
        await becomes(lambda: asked == ["default"], "the question")
        worker.stop()
        worker.stop()
        await work

    play(scene)
