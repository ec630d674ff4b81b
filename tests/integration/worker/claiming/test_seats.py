"""The worker's side of claims ahead: it keeps what it promises, and runs, hands back or asks for what it is given."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched.core.model import Claim
from pgsched.db.connection.connect import connect as reach
from pgsched.db.queries.runs.claims import claim_ahead
from pgsched.leader.preparation import Offer
from pgsched.worker import reservations as seating
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import recovery
from pgsched.worker.reservations import WorkerSeats
from pgsched.worker.worker import Worker
from tests.support.db.setting import Open, add_runs, row_of
from tests.support.workers import Handler, becomes, make, play

ANSWER_S = seating.ANSWER_S


@pytest.fixture(autouse=True)
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine a loop answers later than a leader waits for, and a test takes longer than room is kept."""
    monkeypatch.setattr(seating, "ANSWER_S", 10.0)
    monkeypatch.setattr(seating, "KEPT_S", 60.0)


async def offered(seats: WorkerSeats, n: int) -> Offer:
    """What a worker offers that has room. Its loop may be late with the answer where the machine is busy: ask again."""
    async with asyncio.timeout(20):
        while (offer := await asyncio.to_thread(seats.offer, n)) is None:
            pass
    return offer


async def seats_of(worker: Worker) -> WorkerSeats:
    """The seats of a worker, once it has looked for work and found none."""
    await becomes(lambda: worker.seats is not None and worker._claimer.keeps_up(), "the worker to look for work")
    assert worker.seats is not None
    return worker.seats


@asynccontextmanager
async def at_work(dsn: str, handler: Handler, **settings: Any) -> AsyncIterator[tuple[Worker, WorkerSeats]]:
    """A worker with nothing to do, and its seats; after the block it is stopped and waits for no handler."""
    worker = make(dsn, handler, **settings)
    work = asyncio.create_task(worker.run())
    yield worker, await seats_of(worker)
    worker.stop()
    worker.stop()
    await work


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
        return claim_ahead(conn, offer.wanted, offer.queues, offer.n, 1, uuid4(), ids, now[0]), sent_at


def test_what_is_given_is_run(dsn: str, db: psycopg.Connection) -> None:
    handler = Handler()
    handler.go.set()

    async def scene() -> None:
        async with at_work(dsn, handler) as (_, seats):
            offer = await offered(seats, 50)
            assert offer.n == 2, "as much as there is room for"
            claims, sent_at = await asyncio.to_thread(claimed, dsn, offer)
            await asyncio.to_thread(seats.give, claims, sent_at)
            ended = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"
            await becomes(lambda: db.execute(ended).fetchone() == (5,), "those, and what was left")
            assert {claim.id for claim in claims} == {claim.id for claim in handler.begun[:2]}

    play(scene)


@pytest.mark.parametrize("guarded", [True, False])
def test_room_is_promised_once(guarded: bool, dsn: str, db: psycopg.Connection) -> None:
    """What comes by the queue meanwhile may have what is left, and all of it when the offer has ended."""
    handler = Handler()

    async def scene() -> None:
        async with at_work(dsn, handler) as (worker, seats):
            await offered(seats, 1)
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

    play(scene)


def test_who_found_no_room_meanwhile_is_woken_when_there_is_more_than_was_taken(
    dsn: str, db: psycopg.Connection
) -> None:
    handler = Handler()

    async def scene() -> None:
        async with at_work(dsn, handler, poll_s=30) as (worker, seats):
            offer = await offered(seats, 2)
            add_runs(db, 1)
            await becomes(lambda: worker._claimer.starved, "the claimer to find no room")
            claims, sent_at = await asyncio.to_thread(claimed, dsn, replace(offer, n=1))
            seats.give(claims, sent_at)
            await becomes(lambda: len(handler.begun) == 2, "the other one to begin")

    play(scene)


@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_claim_on_its_way_is_for_is_not_promised(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, sent, answered = claiming.claim, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any) -> list[Claim]:
        found = await really(*args)
        if found:
            sent.set()
            await answered.wait()
        return found

    monkeypatch.setattr(claiming, "claim", slow)
    handler = Handler()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        seats = await seats_of(worker)
        add_runs(db, 2)
        await sent.wait()
        if not guarded:
            worker._claimer.asking = 0
        if guarded:
            assert await asyncio.to_thread(seats.offer, 2) is None
        else:
            await offered(seats, 2)
        answered.set()
        worker.stop()
        worker.stop()
        await asyncio.to_thread(seats.give, [], 0.0)
        await work

    play(scene)


def test_who_has_not_looked_yet_offers_nothing(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        look, looks = claiming.claimable_queues, asyncio.Event()

        async def later(*args: Any, **given: Any) -> Any:
            await looks.wait()
            return await look(*args, **given)

        monkeypatch.setattr(claiming, "claimable_queues", later)
        worker = make(dsn, Handler())
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.seats is not None, "the seats")
        assert worker.seats is not None
        assert await asyncio.to_thread(worker.seats.offer, 1) is None
        looks.set()
        await becomes(worker._claimer.keeps_up, "it to have looked")
        await offered(worker.seats, 1)
        worker.seats.give([], 0.0)
        worker.stop()
        await work

    play(scene)


def test_an_error_in_an_answer_does_not_hold_up_the_leader(dsn: str, db: psycopg.Connection) -> None:
    def broken() -> bool:
        raise ValueError("a bug")

    async def scene() -> None:
        async with at_work(dsn, Handler()) as (worker, seats):
            worker._claimer.keeps_up = broken  # type: ignore[method-assign]
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            assert await asyncio.wait_for(asyncio.to_thread(seats.offer, 1), 5) is None, "nor ends it the worker"
            del worker._claimer.keeps_up

    play(scene)


def test_room_is_not_kept_for_a_leader_that_hears_nothing(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seating, "KEPT_S", 3.0)
    handler = Handler()

    async def scene() -> None:
        async with at_work(dsn, handler) as (worker, seats):
            await offered(seats, 2)
            await asyncio.to_thread(seats.give, [], 0.0)
            await asyncio.sleep(1.5)
            await offered(seats, 2)
            await asyncio.sleep(1.8)
            assert worker.slots.kept == 2, "the first one's time does not count for the second"
            add_runs(db, 2)
            await becomes(lambda: len(handler.begun) == 2, "both to begin")
            asyncio.get_running_loop().call_later(0.5, seats.give, [], 0.0)
            began = time.monotonic()
            await seats.ended(5)
            assert 0.3 < time.monotonic() - began < 4, "who stops still waits for what may have been committed"

    play(scene)


def test_room_that_is_not_needed_may_be_used(dsn: str, db: psycopg.Connection) -> None:
    handler = Handler()

    async def scene() -> None:
        async with at_work(dsn, handler, poll_s=30) as (worker, seats):
            await offered(seats, 2)
            add_runs(db, 2)
            await becomes(lambda: worker._claimer.starved, "the claimer to find no room")
            seats.keep(1)
            await becomes(lambda: len(handler.begun) == 1, "one to begin")
            assert worker.slots.kept == 1
            seats.give([], 0.0)
            await becomes(lambda: len(handler.begun) == 2, "the other one")

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


def test_a_loop_that_is_blocked_offers_nothing(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have time for it. What it answers later keeps no room."""
    monkeypatch.setattr(seating, "ANSWER_S", ANSWER_S)

    async def scene() -> None:
        async with at_work(dsn, Handler()) as (worker, seats):
            answers: list[Offer | None] = []
            asking = threading.Thread(target=lambda: answers.append(seats.offer(1)))
            asking.start()
            time.sleep(0.3)  # noqa: ASYNC251  the loop does not turn
            assert answers == [None]
            await asyncio.sleep(0.1)
            assert worker.slots.kept == 0

    play(scene)


def test_a_worker_that_stops_waits_for_what_it_was_promised_and_hands_it_back(dsn: str, db: psycopg.Connection) -> None:
    handler = Handler()

    async def scene() -> None:
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        seats = await seats_of(worker)
        offer = await offered(seats, 2)
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
        seats = await seats_of(worker)
        offer = await offered(seats, 2)
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


@pytest.mark.parametrize("guarded", [True, False])
def test_what_is_committed_after_the_question_is_found_by_a_later_one(
    guarded: bool, dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection of a commit is lost while the server is still at it."""
    if guarded:
        monkeypatch.setattr(recovery, "ASK_AGAIN_S", 0.1)
    handler = Handler()
    handler.go.set()
    leading = connect(autocommit=False)

    async def scene() -> None:
        async with at_work(dsn, handler) as (worker, seats):
            offer = await offered(seats, 1)
            run = leading.execute("INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id, now()").fetchone()
            assert run is not None
            token = uuid4()
            claims = claim_ahead(leading, offer.wanted, (), 1, 1, token, [run[0]], run[1])
            seats.unsure(["default"], token, time.monotonic())
            await asyncio.sleep(0.3)
            leading.commit()
            if guarded:
                await becomes(lambda: handler.begun == claims, "it to be found")
            else:
                worker._claimer._unconfirmed._lost.clear()
                await asyncio.sleep(1.0)
                assert handler.begun == []

    play(scene)


def test_it_is_asked_for_also_by_a_worker_that_is_full(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their leases run."""
    asked: list[str] = []

    async def ask(conn: Any, queue: str, token: Any) -> list[Claim]:
        asked.append(queue)
        return []

    monkeypatch.setattr(recovery, "claim_again", ask)
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
