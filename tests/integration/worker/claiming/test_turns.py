"""The order of a claimer's work: no queue starves another, claimed runs begin first, and no look is made in vain."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.runs.claims import WorkerOffer
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import cursor, discovery, queue_claims
from pgsched.worker.claiming import polling as resting
from pgsched.worker.claiming.claimer import Claimer
from tests.support.db.claiming import Scene, finds_no_queue, play, running
from tests.support.db.setting import KINDS
from tests.support.waiting import wait_until


def test_a_queue_that_never_runs_dry_starves_no_other_queue(dsn: str, db: psycopg.Connection) -> None:
    for queue in "abc":
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT %s, 't' FROM generate_series(1, 60)", [queue])
    taken: Counter[str] = Counter()
    free = 5

    def take(claims: list[Claim], _: float) -> None:
        nonlocal free
        free -= len(claims)
        taken.update(claim.queue for claim in claims)

    async def scene() -> None:
        nonlocal free
        wanted = WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"])
        claimer = Claimer(dsn, wanted, (), 1.0, lambda: free, take)
        for _ in range(9):
            free = 5
            await claimer.run_once()
        await claimer.close()

    asyncio.run(scene())
    assert taken == {"a": 15, "b": 15, "c": 15}


def test_claimed_runs_begin_before_the_look_for_queues(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor, "SHARE", 0)  # a look for queues is always affordable

    async def scene(it: Scene) -> None:
        await it.round()
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
        it.claimer.hint("default")
        it.claimer.hint(None)  # it is time to look for queues
        assert (await it.round())[:2] == ["claim", "begun"]
        assert it.noted.count("claimable_queues") == 1, "the question is asked in the same round"

    play(Scene(dsn, monkeypatch, 5), scene)


def test_a_server_that_refuses_to_plan_does_not_change_how_a_claimer_waits(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep: list[float | None] = []
    refused, really = list[str](), discovery.claimable_queues

    async def refuse(*_: Any) -> None:
        refused.append("once")
        raise psycopg.errors.LockNotAvailable("a migration is under way")

    async def noted(conn: Any, wanted: WorkerOffer, asleep_s: float | None, **options: Any) -> Any:
        asleep.append(asleep_s)
        return await really(conn, wanted, asleep_s, **options)

    monkeypatch.setattr(claiming, "is_shared", lambda conn: True)
    monkeypatch.setattr(claiming, "plan_claims", refuse)

    async def scene(it: Scene) -> None:
        monkeypatch.setattr(discovery, "claimable_queues", noted)
        async with running(it):
            await asyncio.to_thread(wait_until, lambda: len(asleep) > 1, 10, "two looks after the refusal")
        assert refused == ["once"], "the connection stays"
        assert set(asleep) == {None}, "a pooler brings no notification: it does not say that it sleeps"

    play(Scene(dsn, monkeypatch, 5), scene)


def test_free_room_wakes_a_claimer_that_left_runs_for_lack_of_room(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 3)")
        await it.round()
        assert it.free == 0
        it.claimer.wake()
        assert it.claimer.woken.is_set(), "a run is left"
        it.claimer.woken.clear()
        it.free = 2
        await it.round()
        assert it.free == 1
        it.claimer.wake()
        assert not it.claimer.woken.is_set(), "there was nothing more to claim: room makes no difference"
        it.free = 0
        await it.round()
        it.claimer.wake()
        assert it.claimer.woken.is_set(), "nobody has looked"

    play(Scene(dsn, monkeypatch, 2), scene)


def test_a_busy_claimer_goes_on_claiming_after_a_look_that_found_nothing(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "WINDOW_S", 60.0)
    monkeypatch.setattr(cursor, "SHARE", 0)  # scans from the start need no pause

    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 60)")
        await it.round()
        monkeypatch.setattr(discovery, "claimable_queues", finds_no_queue)
        for _ in range(5):
            assert "claim" in await it.round()

    play(Scene(dsn, monkeypatch, 500), scene)


def test_free_room_wakes_a_claimer_whose_room_shrank_during_its_round(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = "INSERT INTO pgsched.runs (task) VALUES ('t')"
    really = discovery.claimable_queues

    async def scene(it: Scene) -> None:
        async def then_full(*args: Any, **options: Any) -> Any:
            found = await really(*args, **options)
            it.free = 0  # the room shrinks during the round, as when runs claimed ahead fill half of the prefetch
            return found

        db.execute(run)
        monkeypatch.setattr(discovery, "claimable_queues", then_full)
        it.claimer.hint("default")
        it.claimer.woken.clear()  # so that it sleeps after the round
        async with running(it):
            await asyncio.to_thread(
                wait_until, lambda: it.claimer.starved, 10, "the claimer to find that it has no room"
            )
            db.execute(run)
            monkeypatch.setattr(discovery, "claimable_queues", really)
            it.free = 5
            it.claimer.wake()
            await asyncio.to_thread(wait_until, lambda: it.free == 4, 10, "the next run, long before the poll")

    play(Scene(dsn, monkeypatch, 5, poll_s=60.0), scene)


def test_a_claimer_busy_with_one_queue_soon_sees_runs_of_another_queue(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "WINDOW_S", 60.0)

    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'a', 't' FROM generate_series(1, 60)")
        await it.round()
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('b', 't')")  # without a hint
        async with asyncio.timeout(10):
            while it.free > 439:
                await it.round()
                await asyncio.sleep(0.002)

    play(Scene(dsn, monkeypatch, 500, poll_s=60.0), scene)


def test_a_hint_for_one_queue_does_not_hide_the_others(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('a', 't'), ('b', 't')")
        await it.round()
        assert it.free == 498
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('a', 't'), ('b', 't')")
        monkeypatch.setattr(discovery, "claimable_queues", finds_no_queue)
        it.claimer.hint("b")
        await it.round()
        assert it.free == 496

    play(Scene(dsn, monkeypatch, 500), scene)


def test_a_run_that_comes_while_sleep_is_announced_is_claimed_at_once(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor, "SHARE", 0)  # a look for queues is always affordable
    really = discovery.claimable_queues

    async def meanwhile(*args: Any, **options: Any) -> Any:
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
        return await really(*args, **options)

    async def scene(it: Scene) -> None:
        await it.round()
        monkeypatch.setattr(discovery, "claimable_queues", meanwhile)
        it.claimer.hint("default")
        it.claimer.hint(None)  # it is time to look for queues
        await it.round()
        assert it.free == 4

    play(Scene(dsn, monkeypatch, 5), scene)


def test_a_run_that_a_look_may_have_missed_is_looked_for_again(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor, "SHARE", 0)  # a look for queues is always affordable
    really = discovery.claimable_queues

    async def scene(it: Scene) -> None:
        async def too_early(*args: Any, **options: Any) -> Any:
            answer = await really(*args, **options)
            db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
            it.claimer.hint(None)  # only now the claimer listens
            return answer

        monkeypatch.setattr(discovery, "claimable_queues", too_early)
        await it.round()
        monkeypatch.setattr(discovery, "claimable_queues", really)
        await it.round()
        assert it.free == 4

    play(Scene(dsn, monkeypatch, 5), scene)


def test_a_queue_whose_claims_fail_does_not_block_other_queues(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        really = queue_claims.claim

        async def failing(conn: Any, wanted: WorkerOffer, queue: str, *more: Any) -> Any:
            if queue == "bad" and it.free < 500:  # its first run is taken
                raise psycopg.errors.SerializationFailure("broken")
            return await really(conn, wanted, queue, *more)

        monkeypatch.setattr(queue_claims, "claim", failing)
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('bad', 't')")
        await it.round()
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('aside', 't'), ('zoo', 't')")
        async with running(it):
            await asyncio.to_thread(wait_until, lambda: it.free == 497, 20)

    play(Scene(dsn, monkeypatch, 500), scene)


def test_the_event_loop_is_blocked_for_claims_only(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        held: list[float] = []
        really = queue_claims.hold
        monkeypatch.setattr(queue_claims, "hold", lambda conn, s: (held.append(s), really(conn, s)))
        it.claimer.hint("default")
        await it.round()
        assert held[:2] == [queue_claims.HOLD_S, 0.0]
        assert held[-1] == 0.0

    play(Scene(dsn, monkeypatch, 5), scene)
