"""How often a claimer looks for queues and scans them: slow scans take a small share of its time, and hide no run."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.runs.claims import FROM_THE_START, WorkerOffer
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import cursor, discovery, queue_claims
from pgsched.worker.claiming import polling as resting
from pgsched.worker.claiming.cursor import Cursor
from tests.support.db.claiming import Scene, finds_no_queue, play, running
from tests.support.waiting import wait_until


@pytest.mark.long
def test_a_look_that_was_not_affordable_yet_does_not_delay_the_next_ones(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = discovery.claimable_queues
    monkeypatch.setattr(cursor, "EVERY_S", 0.2)
    monkeypatch.setattr(cursor, "SHARE", 10)

    async def scene(it: Scene) -> None:
        looked_at: list[float] = []

        async def slow(*args: Any, **options: Any) -> Any:
            looked_at.append(time.monotonic())
            await asyncio.sleep(0.02)
            return await really(*args, **options)

        monkeypatch.setattr(discovery, "claimable_queues", slow)
        async with running(it):
            await asyncio.to_thread(wait_until, lambda: len(looked_at) == 4, 10, "looks at 0, 0.2, 0.4 and 0.9 s")

    play(Scene(dsn, monkeypatch, 5, poll_s=60.0), scene)


@pytest.mark.long
@pytest.mark.parametrize("guarded", [True, False])
def test_wake_ups_that_find_nothing_do_not_delay_the_look_at_all_queues(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = discovery.claimable_queues
    monkeypatch.setattr(claiming.random, "random", lambda: 0.0)
    if not guarded:
        monkeypatch.setattr(discovery.Discovery, "look_at", lambda *_: time.monotonic() + 0.5)

    async def scene(it: Scene) -> None:
        looked_at: list[float] = []

        async def noted(*args: Any, **options: Any) -> Any:
            if options["look"]:
                looked_at.append(time.monotonic())
            return await really(*args, **options)

        monkeypatch.setattr(discovery, "claimable_queues", noted)
        async with running(it):
            for _ in range(8):
                await asyncio.sleep(0.45)
                it.claimer.hint("nothing")
        assert (len(looked_at) > 4) is guarded, "each half second, and not at every other time that it was woken"

    play(Scene(dsn, monkeypatch, 5, poll_s=0.25), scene)


@pytest.mark.long
def test_looks_and_their_claims_take_a_small_share_of_the_time(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = queue_claims.claim_many

    async def slow(*given: Any) -> Any:
        await asyncio.sleep(0.1)
        return await really(*given)

    monkeypatch.setattr(resting, "WINDOW_S", 60.0)
    monkeypatch.setattr(queue_claims, "claim_many", slow)

    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'a', 't' FROM generate_series(1, 60)")
        await it.round()
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'q' || n % 5, '?' FROM generate_series(1, 100) n")
        asked, until = 0, time.monotonic() + 1.5
        while time.monotonic() < until:
            asked += (await it.round()).count("claimable_queues")
            await asyncio.sleep(0.002)
        assert 1 <= asked <= 2, "each look costs a tenth of a second: one a second is enough"

    play(Scene(dsn, monkeypatch, 500), scene)


@pytest.mark.long
@pytest.mark.parametrize("behind", [False, True], ids=["no cursor", "behind a cursor"])
def test_a_backlog_of_unknown_tasks_is_not_read_at_every_hint(
    behind: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, claims = queue_claims.claim, 0
    backlog = "INSERT INTO pgsched.runs (task) SELECT 'unknown' FROM generate_series(1, 5)"

    async def slow(*given: Any) -> Any:
        nonlocal claims
        claims += 1
        await asyncio.sleep(0.2)
        return await really(*given)

    async def scene(it: Scene) -> None:
        if behind:
            db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
            it.claimer.hint("default")
            await it.round()
        db.execute(backlog)
        free = it.free
        monkeypatch.setattr(queue_claims, "claim", slow)
        async with running(it):
            until = time.monotonic() + 3
            while time.monotonic() < until:
                it.claimer.hint("default")
                await asyncio.sleep(0.01)
            assert 1 <= claims <= (7 if behind else 3), "each reads what nobody here can run"
            db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
            it.claimer.hint("default")
            await asyncio.to_thread(wait_until, lambda: it.free < free, cursor.SHARE * 0.2 + 2, "its own run to start")

    play(Scene(dsn, monkeypatch, 500), scene)


def test_one_slow_scan_that_finds_nothing_delays_no_claim(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, slow = queue_claims.claim, [False]

    async def now_and_then(*given: Any) -> Any:
        if slow.pop():
            await asyncio.sleep(0.2)
        slow.append(False)
        return await really(*given)

    monkeypatch.setattr(cursor, "SLOW_S", 0.1)  # so that a machine busy with other tests does not count as slow

    async def scene(it: Scene) -> None:
        monkeypatch.setattr(queue_claims, "claim", now_and_then)
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('unknown')")
        for _ in range(3):
            slow[:] = [True]
            it.claimer.hint("default")
            await it.round()
            free = it.free
            db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
            it.claimer.hint("default")
            await it.round()
            assert it.free == free - 1

    play(Scene(dsn, monkeypatch, 500), scene)


def slow_scene(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a claimer whose scans of a queue from the start take 50 ms, and that learns of work only by hints."""
    it = Scene(dsn, monkeypatch, 1, poll_s=60.0)
    really = queue_claims.claim

    async def slow(*given: Any) -> list[Claim]:
        if is_from_the_start(*given):
            await asyncio.sleep(0.05)
        return await really(*given)

    monkeypatch.setattr(queue_claims, "claim", slow)
    monkeypatch.setattr(discovery, "claimable_queues", finds_no_queue)
    monkeypatch.setattr(cursor, "EVERY_S", 0.2)
    return it


def is_from_the_start(conn: Any, wanted: WorkerOffer, queue: str, n: int, token: Any, span: Any, *more: Any) -> bool:
    """Return whether a claim with these arguments scans its queue from the start."""
    return span is FROM_THE_START


async def leave_behind(it: Scene, db: psycopg.Connection, dsn: str) -> None:
    """Commit a run when the cursor has already passed its position."""
    task = "INSERT INTO pgsched.runs (task) VALUES ('t')"
    with psycopg.connect(dsn) as late:
        late.execute(task)
        db.execute(task)
        it.claimer.hint("default")
        await it.round()
        assert it.free == 0


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_behind_the_cursor_is_claimed_by_the_next_rescan(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = slow_scene(dsn, monkeypatch)
    if not guarded:
        monkeypatch.setattr(Cursor, "full_in", lambda *_: 1.0)
        monkeypatch.setattr(cursor, "EVERY_S", math.inf)  # no rescan is ever overdue

    async def scene(it: Scene) -> None:
        await leave_behind(it, db, dsn)
        it.free = 5
        async with running(it):
            it.claimer.hint("default")
            if guarded:
                await asyncio.to_thread(wait_until, lambda: it.free == 4, 10, "the late run")
            else:
                await asyncio.sleep(1.5)
        assert (it.free == 4) is guarded

    play(it, scene)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_behind_the_cursor_is_claimed_although_the_cursor_never_runs_dry(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = slow_scene(dsn, monkeypatch)
    if not guarded:
        monkeypatch.setattr(cursor, "EVERY_S", math.inf)  # no rescan is ever overdue
    taken: set[int] = set()
    it.claimer.claims.on_claims = lambda claims, _: taken.update(claim.id for claim in claims)

    async def scene(it: Scene) -> None:
        with psycopg.connect(dsn) as late:
            row = late.execute("INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id").fetchone()
            db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 200)")
            it.claimer.hint("default")
            await it.round()
        assert row is not None and row[0] not in taken
        until = time.monotonic() + 1.0
        while time.monotonic() < until and row[0] not in taken:
            await it.round()
            await asyncio.sleep(0.01)
        assert len(taken) < 200, "the cursor always found as many as it asked for"
        assert (row[0] in taken) is guarded

    play(it, scene)


@pytest.mark.long
def test_rescans_of_a_slow_queue_are_paced_however_many_hints_come(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = slow_scene(dsn, monkeypatch)
    really, from_the_start = queue_claims.claim, 0

    async def counted(*given: Any) -> list[Claim]:
        nonlocal from_the_start
        from_the_start += is_from_the_start(*given)
        return await really(*given)

    async def scene(it: Scene) -> None:
        monkeypatch.setattr(queue_claims, "claim", counted)
        it.free, until = 1_000_000, time.monotonic() + 3
        async with running(it):
            while time.monotonic() < until:
                await asyncio.to_thread(db.execute, "INSERT INTO pgsched.runs (task) VALUES ('t')")
                it.claimer.hint("default")
                await asyncio.sleep(0.02)
        assert 2 <= from_the_start <= 6, "after 0, 0.2, 0.6, 1.4 and 2.4 s"

    play(it, scene)


def test_a_scan_from_the_start_that_has_no_answer_is_not_repeated_at_once(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = slow_scene(dsn, monkeypatch)
    really, tried, timed_out = queue_claims.claim, list[bool](), psycopg.errors.QueryCanceled("statement timeout")

    async def cancelled(*given: Any) -> list[Claim]:
        tried.append(is_from_the_start(*given))
        if tried[-1]:
            monkeypatch.setattr(cursor, "EVERY_S", 60.0)  # no rescan becomes overdue, even on a busy machine
            raise timed_out
        return await really(*given)

    async def rounds(it: Scene) -> None:
        while True:
            it.claimer.hint("default")
            await it.round()
            await asyncio.sleep(0.01)

    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
        it.claimer.hint("default")
        await it.round()
        it.free = 1
        monkeypatch.setattr(queue_claims, "claim", cancelled)
        with pytest.raises(psycopg.errors.QueryCanceled):
            await asyncio.wait_for(rounds(it), 10)  # until a scan from the start is overdue
        tried.clear()
        it.claimer.hint("default")
        await it.round()
        assert tried == [False], "from the cursor on, and no scan from the start after it"

    play(it, scene)
