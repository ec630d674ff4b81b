"""The order of what a claimer does: no queue starves another, no run waits for questions, and none is asked in vain."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.runs.claims import FROM_THE_START, Found, Wanted
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import cursor
from pgsched.worker.claiming import polling as resting
from pgsched.worker.claiming.claimer import Claimer
from pgsched.worker.claiming.cursor import Budget, Cursor
from tests.support.db.setting import KINDS
from tests.support.waiting import wait_until


def test_a_queue_that_never_runs_dry_starves_no_other(dsn: str, db: psycopg.Connection) -> None:
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
        wanted = Wanted(1, 30.0, KINDS["kinds"], KINDS["tasks"])
        claimer = Claimer(dsn, wanted, (), 1.0, lambda: free, take)
        for _ in range(9):
            free = 5
            await claimer._round()
        await claimer.close()

    asyncio.run(scene())
    assert taken == {"a": 15, "b": 15, "c": 15}


class Scene:
    """A claimer whose statements and claims are noted in order, with so many free slots."""

    def __init__(self, dsn: str, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.free = free
        self.noted: list[str] = []
        self.claimer = Claimer(
            dsn, Wanted(1, 30.0, KINDS["kinds"], KINDS["tasks"]), (), 1.0, lambda: self.free, self.take, lambda: True
        )
        for name in ("claim", "claim_many", "claimable_queues"):
            monkeypatch.setattr(claiming, name, self.noting(name, getattr(claiming, name)))

    def noting(self, name: str, really: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def noted(*args: Any, **options: Any) -> Any:
            self.noted.append(name)
            return await really(*args, **options)

        return noted

    def take(self, claims: list[Claim], _: float) -> None:
        self.free -= len(claims)
        asyncio.get_running_loop().call_soon(self.noted.append, "begun")

    async def round(self) -> list[str]:
        """What a round did."""
        self.noted.clear()
        await self.claimer._round()
        return list(self.noted)


def play(it: Scene, scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def played() -> None:
        await scene(it)
        await it.claimer.close()

    asyncio.run(played())


def test_what_is_claimed_begins_before_anything_else_is_asked(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        await it.round()
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
        it.claimer.hint("default")
        it.claimer._discovered_at, it.claimer._looking = -math.inf, Budget()  # it is time to look for queues
        assert (await it.round())[:2] == ["claim", "begun"]
        assert it.noted.count("claimable_queues") == 1, "the question is asked in the same round"

    play(Scene(dsn, monkeypatch, 5), scene)


def test_a_server_that_was_busy_when_a_claimer_came_changes_nothing_of_how_it_waits(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any) -> None:
        raise psycopg.errors.LockNotAvailable("a migration is under way")

    monkeypatch.setattr(claiming, "is_shared", lambda conn: True)

    async def scene(it: Scene) -> None:
        with monkeypatch.context() as now:
            now.setattr(claiming, "plan_claims", refused)
            with pytest.raises(psycopg.errors.LockNotAvailable) as error:
                await it.round()
        await it.claimer._recover(error.value, 1)
        await it.round()
        assert isinstance(it.claimer._rest, resting.Polling), "a pooler brings no notification"

    play(Scene(dsn, monkeypatch, 5), scene)


def test_room_wakes_a_claimer_that_left_something_for_want_of_it(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 3)")
        await it.round()
        assert it.free == 0
        it.claimer.wake()
        assert it.claimer._wake.is_set(), "a run is left"
        it.claimer._wake.clear()
        it.free = 2
        await it.round()
        assert it.free == 1
        it.claimer.wake()
        assert not it.claimer._wake.is_set(), "there was nothing more to claim: room makes no difference"
        it.free = 0
        await it.round()
        it.claimer.wake()
        assert it.claimer._wake.is_set(), "nobody has looked"

    play(Scene(dsn, monkeypatch, 2), scene)


def test_one_who_naps_between_many_runs_goes_on_looking_after_a_look_in_vain(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "WINDOW_S", 60.0)
    monkeypatch.setattr(cursor, "SHARE", 0)  # what is behind the cursor is not waited for

    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 60)")
        await it.round()
        it.claimer._discovered_at = math.inf
        for _ in range(5):
            assert "claim" in await it.round()

    play(Scene(dsn, monkeypatch, 500), scene)


def test_room_wakes_a_claimer_for_whom_it_became_less_after_it_had_asked(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        it.claimer.poll_s, it.claimer._rest = 60.0, resting.Rest(60.0)
        db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 3)")
        await it.round()
        it.free = 0  # as when what is claimed ahead fills half of what may be
        asleep = asyncio.create_task(it.claimer._sleep())
        await asyncio.sleep(0.01)
        it.free = 5
        it.claimer.wake()
        async with asyncio.timeout(5):
            await asleep

    play(Scene(dsn, monkeypatch, 5), scene)


def test_one_who_is_awake_for_one_queue_soon_sees_what_comes_into_another(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "WINDOW_S", 60.0)

    async def scene(it: Scene) -> None:
        it.claimer.poll_s, it.claimer._rest = 60.0, resting.Rest(60.0)
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'a', 't' FROM generate_series(1, 60)")
        await it.round()
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('b', 't')")  # and nobody is told
        async with asyncio.timeout(10):
            while it.free > 439:
                await it.round()
                await asyncio.sleep(0.002)

    play(Scene(dsn, monkeypatch, 500), scene)


def test_a_hint_for_one_queue_does_not_hide_the_others(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('a', 't'), ('b', 't')")
        await it.round()
        assert it.free == 498
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('a', 't'), ('b', 't')")
        it.claimer._rotation._hinted = {"b": None}
        it.claimer._discovered_at = math.inf
        await it.round()
        assert it.free == 496

    play(Scene(dsn, monkeypatch, 500), scene)


def test_what_comes_while_it_says_that_it_sleeps_is_looked_for_at_once(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = claiming.claimable_queues

    async def meanwhile(*args: Any, **options: Any) -> Any:
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
        return await really(*args, **options)

    async def scene(it: Scene) -> None:
        await it.round()
        monkeypatch.setattr(claiming, "claimable_queues", meanwhile)
        it.claimer._rotation._hinted = {"default": None}
        it.claimer._discovered_at, it.claimer._looking = -math.inf, Budget()
        await it.round()
        assert it.free == 4

    play(Scene(dsn, monkeypatch, 5), scene)


def test_what_may_have_been_missed_while_it_looks_is_looked_for_again(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = claiming.claimable_queues

    async def scene(it: Scene) -> None:
        async def too_early(*args: Any, **options: Any) -> Any:
            answer = await really(*args, **options)
            db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
            it.claimer.hint(None)  # it listens only now
            return answer

        monkeypatch.setattr(claiming, "claimable_queues", too_early)
        await it.round()
        monkeypatch.setattr(claiming, "claimable_queues", really)
        it.claimer._looking = Budget()
        await it.round()
        assert it.free == 4

    play(Scene(dsn, monkeypatch, 5), scene)


def test_a_look_that_was_not_affordable_yet_puts_off_none_of_the_next(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = claiming.claimable_queues
    monkeypatch.setattr(cursor, "EVERY_S", 0.2)
    monkeypatch.setattr(cursor, "SHARE", 10)

    async def scene(it: Scene) -> None:
        looked_at: list[float] = []

        async def slow(*args: Any, **options: Any) -> Any:
            looked_at.append(time.monotonic())
            await asyncio.sleep(0.02)
            return await really(*args, **options)

        monkeypatch.setattr(claiming, "claimable_queues", slow)
        it.claimer._rest = resting.Rest(60.0)
        running = asyncio.create_task(it.claimer.run())
        await asyncio.to_thread(wait_until, lambda: len(looked_at) == 4, 10, "looks at 0, 0.2, 0.4 and 0.9 s")
        it.claimer.stop()
        await running

    play(Scene(dsn, monkeypatch, 5), scene)


@pytest.mark.parametrize("guarded", [True, False])
def test_being_woken_in_vain_does_not_put_off_the_look_at_all_queues(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = claiming.claimable_queues
    monkeypatch.setattr(claiming.random, "random", lambda: 0.0)
    if not guarded:
        monkeypatch.setattr(Claimer, "_look_at", lambda *_: time.monotonic() + 0.5)

    async def scene(it: Scene) -> None:
        looked_at: list[float] = []

        async def noted(*args: Any, **options: Any) -> Any:
            if options["look"]:
                looked_at.append(time.monotonic())
            return await really(*args, **options)

        monkeypatch.setattr(claiming, "claimable_queues", noted)
        it.claimer._rest = resting.Rest(0.25)
        running = asyncio.create_task(it.claimer.run())
        for _ in range(8):
            await asyncio.sleep(0.45)
            it.claimer.hint("nothing")
        it.claimer.stop()
        await running
        assert (len(looked_at) > 4) is guarded, "each half second, and not at every other time that it was woken"

    play(Scene(dsn, monkeypatch, 5), scene)


def test_a_queue_whose_claims_fail_does_not_keep_a_claimer_from_the_others(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        really = claiming.claim

        async def failing(conn: Any, wanted: Wanted, queue: str, *more: Any) -> Any:
            if queue == "bad" and it.free < 500:  # its first run is taken
                raise psycopg.errors.SerializationFailure("broken")
            return await really(conn, wanted, queue, *more)

        monkeypatch.setattr(claiming, "claim", failing)
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('bad', 't')")
        await it.round()
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('aside', 't'), ('zoo', 't')")
        running = asyncio.create_task(it.claimer.run())
        await asyncio.to_thread(wait_until, lambda: it.free == 497, 20)
        it.claimer.stop()
        await running

    play(Scene(dsn, monkeypatch, 500), scene)


def test_the_loop_is_held_for_claims_only(dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(it: Scene) -> None:
        held: list[float] = []
        really = claiming.hold
        monkeypatch.setattr(claiming, "hold", lambda conn, s: (held.append(s), really(conn, s)))
        it.claimer.hint("default")
        await it.round()
        assert held[:2] == [claiming.HOLD_S, 0.0]
        assert held[-1] == 0.0

    play(Scene(dsn, monkeypatch, 5), scene)


def test_looks_of_one_who_naps_take_a_small_share_of_its_time_with_the_claims_that_follow(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = claiming.claim_many

    async def slow(*given: Any) -> Any:
        await asyncio.sleep(0.1)
        return await really(*given)

    monkeypatch.setattr(resting, "WINDOW_S", 60.0)
    monkeypatch.setattr(claiming, "claim_many", slow)

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


@pytest.mark.parametrize("behind", [False, True], ids=["no cursor", "behind a cursor"])
def test_a_backlog_of_others_is_not_read_at_every_hint(
    behind: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, claims = claiming.claim, 0
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
        monkeypatch.setattr(claiming, "claim", slow)
        running = asyncio.create_task(it.claimer.run())
        until = time.monotonic() + 5
        while time.monotonic() < until:
            it.claimer.hint("default")
            await asyncio.sleep(0.01)
        assert 1 <= claims <= (7 if behind else 3), "each reads what nobody here can run"
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
        it.claimer.hint("default")
        await asyncio.to_thread(wait_until, lambda: it.free < free, cursor.SHARE * 0.2 + 2, "its own run to start")
        it.claimer.stop()
        await running

    play(Scene(dsn, monkeypatch, 500), scene)


def test_one_slow_claim_in_vain_delays_nothing(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, slow = claiming.claim, [False]

    async def now_and_then(*given: Any) -> Any:
        if slow.pop():
            await asyncio.sleep(0.2)
        slow.append(False)
        return await really(*given)

    monkeypatch.setattr(cursor, "SLOW_S", 0.1)  # a machine that is busy with other tests is not slow

    async def scene(it: Scene) -> None:
        monkeypatch.setattr(claiming, "claim", now_and_then)
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
    """A claimer for which a scan of a queue from its start counts as 50 ms, and that is told of work by hints only."""

    async def nothing(*_: Any, **__: Any) -> Any:
        return Found([], 120.0, None)

    really = Cursor._pace
    monkeypatch.setattr(Cursor, "_pace", lambda one, took_s, now: really(one, took_s + 0.05, now))
    monkeypatch.setattr(cursor, "EVERY_S", 0.2)
    it = Scene(dsn, monkeypatch, 1)
    monkeypatch.setattr(claiming, "claimable_queues", nothing)
    it.claimer.poll_s, it.claimer._rest = 60.0, resting.Rest(60.0)
    return it


async def leave_behind(it: Scene, db: psycopg.Connection, dsn: str) -> None:
    """A run that commits when the cursor has passed it already."""
    task = "INSERT INTO pgsched.runs (task) VALUES ('t')"
    with psycopg.connect(dsn) as late:
        late.execute(task)
        db.execute(task)
        it.claimer.hint("default")
        await it.round()
        assert it.free == 0


@asynccontextmanager
async def running(it: Scene) -> AsyncIterator[None]:
    """The claimer goes on by itself."""
    work = asyncio.create_task(it.claimer.run())
    try:
        yield
    finally:
        it.claimer.stop()
        await work


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_behind_the_cursor_is_claimed_by_the_next_rescan(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = slow_scene(dsn, monkeypatch)
    if not guarded:
        monkeypatch.setattr(Cursor, "full_in", lambda *_: 1.0)

    async def scene(it: Scene) -> None:
        await leave_behind(it, db, dsn)
        if not guarded:
            it.claimer._known.cursor("default")._overdue_at = math.inf
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
    taken: set[int] = set()
    it.claimer.on_claims = lambda claims, _: taken.update(claim.id for claim in claims)

    async def scene(it: Scene) -> None:
        with psycopg.connect(dsn) as late:
            row = late.execute("INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id").fetchone()
            db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 200)")
            it.claimer.hint("default")
            await it.round()
        if not guarded:
            it.claimer._known.cursor("default")._overdue_at = math.inf
        assert row is not None and row[0] not in taken
        until = time.monotonic() + 1.0
        while time.monotonic() < until and row[0] not in taken:
            await it.round()
            await asyncio.sleep(0.01)
        assert len(taken) < 200, "the cursor always found as many as it asked for"
        assert (row[0] in taken) is guarded

    play(it, scene)


def test_rescans_of_a_slow_queue_are_paced_however_often_it_is_hinted(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = slow_scene(dsn, monkeypatch)
    really, from_the_start = claiming.claim, 0

    async def counted(*given: Any) -> list[Claim]:
        nonlocal from_the_start
        from_the_start += given[5] is FROM_THE_START
        return await really(*given)

    async def scene(it: Scene) -> None:
        monkeypatch.setattr(claiming, "claim", counted)
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
    async def cancelled(*_: Any) -> list[Claim]:
        raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")

    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
        it.claimer.hint("default")
        await it.round()
        one = it.claimer._known.cursor("default")
        one._overdue_at = 0.0
        assert one.after(time.monotonic()) is FROM_THE_START
        it.free = 1
        monkeypatch.setattr(claiming, "claim", cancelled)
        it.claimer.hint("default")
        with pytest.raises(psycopg.errors.QueryCanceled):
            await it.claimer._round()
        assert one.after(time.monotonic()) is not FROM_THE_START
        assert one.full_in(time.monotonic()) > 0

    play(slow_scene(dsn, monkeypatch), scene)
