"""Runs that count as begun once claimed wait for a free place. A claim that took long is not handed back."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Claims
from pgsched.db.queries.runs.claims import WorkerOffer
from pgsched.worker.claiming import queue_claims
from pgsched.worker.claiming.claimer import Claimer
from tests.support.db.setting import KINDS, add_runs, cut, row_of
from tests.support.workers import Handler, becomes, make, play

ORDER = "    ORDER BY priority, available_at, id\n"


def test_a_claimer_waits_for_a_free_place_and_is_woken_for_it(dsn: str, db: psycopg.Connection) -> None:
    taken: list[int] = []
    places = 0

    def take(claims: Claims, _: float) -> None:
        taken.extend(claim.id for claim in claims)

    async def scene() -> None:
        nonlocal places
        wanted = WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"])
        claimer = Claimer(dsn, wanted, (), 60.0, lambda: 5, take, lambda: True, lambda: places)
        working = asyncio.create_task(claimer.run())
        await asyncio.to_thread(add_runs, db, 1)
        await asyncio.to_thread(db.execute, "UPDATE pgsched.runs SET max_attempts = 1")
        claimer.hint("default")
        await becomes(lambda: claimer.wants_place, "the claimer to want a place")
        assert taken == []
        places = 1
        claimer.wake()
        await becomes(lambda: taken, "a claim")
        claimer.stop()
        await working
        await claimer.close()

    play(scene)


def test_a_heartbeat_records_which_runs_have_begun(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        worker = make(dsn, handler)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.begun, "the start")
        await becomes(lambda: row_of(db, 1)["begun"], "a heartbeat")
        handler.go.set()
        await becomes(lambda: worker.verdicts, "the settlement")
        worker.stop()
        await work

    play(scene)


@pytest.mark.few(1)
@pytest.mark.parametrize("guarded", [True, False])
def test_the_claims_of_a_scan_that_takes_longer_than_the_lease_are_kept(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "claim_start", ORDER, f"      AND (SELECT pg_sleep(1.5)) IS NOT NULL\n{ORDER}")
    if not guarded:

        async def from_the_sending(_conn: object, _claims: object, sent_at: float, _lease_s: float) -> float:
            return sent_at

        monkeypatch.setattr(queue_claims, "lease_start", from_the_sending)
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        worker = make(dsn, handler, lease_s=1.5)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.verdicts, "a settlement")
        assert worker.verdicts == ({"succeeded": 1} if guarded else {"queued": 1})
        worker.stop()
        await work

    play(scene)


def test_a_claimer_stopped_while_it_asks_for_the_lease_hands_back_claims(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    async def scene() -> None:
        asking = asyncio.Event()

        async def ask_for_ever(*_: object) -> float:
            asking.set()
            await asyncio.Event().wait()
            raise AssertionError

        wanted = WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"])
        claimer = Claimer(dsn, wanted, (), 60.0, lambda: 5, lambda claims, _: taken.extend(c.id for c in claims))
        await asyncio.to_thread(add_runs, db, 3)
        with monkeypatch.context() as slow:
            slow.setattr(queue_claims, "lease_start", ask_for_ever)
            working = asyncio.create_task(claimer.run())
            await asking.wait()
            working.cancel()
            await asyncio.wait([working])
        await claimer.close()

    play(scene)
    assert sorted(taken) == [1, 2, 3], "to be handed back"


@pytest.mark.long
def test_claims_lock_few_more_runs_than_there_are_free_places(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, places = 1000, 4
    add_runs(db, count)
    db.execute("UPDATE pgsched.runs SET max_attempts = 1, queue = 'q' || id % 500")
    asked: list[int] = []  # how many runs each statement asked for; 0 without a free place
    for name in ("claim", "claim_many"):
        really = getattr(queue_claims, name)

        async def counted(*given: object, really: Any = really, **more: object) -> object:
            asked.append(int(given[3]) if given[-1] else 0)  # type: ignore[call-overload]
            return await really(*given, **more)

        monkeypatch.setattr(queue_claims, name, counted)

    async def scene() -> None:
        handler = Handler()
        handler.go.set()
        worker = make(dsn, handler, concurrency=places)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: worker.verdicts.get("succeeded") == count, "the end of all")
        worker.stop()
        await work

    play(scene)
    print(f"{len(asked)} statements, for {sum(asked)} runs")
    # 6 to 83 for each run, depending on the load; 153 to 465 if queues with such runs are not remembered
    assert sum(asked) < 110 * count, "each statement locks what it asks for"
