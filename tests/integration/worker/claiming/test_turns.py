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
from pgsched.db.queries.runs.claims import FROM_THE_START, Wanted
from pgsched.worker.claiming import backlog_pieces, cursor
from pgsched.worker.claiming import backlog_scan as beside
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import polling as resting
from pgsched.worker.claiming.backlog_scan import Aside
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
        for name in ("claim", "claimable_queues"):
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
        it.claimer._hints = {"b": None}
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
        it.claimer._hints = {"default": None}
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
    really = claiming.claim

    async def slow(conn: Any, wanted: Wanted, queue: str, *more: Any) -> Any:
        await asyncio.sleep(0.02 if queue != "a" else 0)
        return await really(conn, wanted, queue, *more)

    monkeypatch.setattr(resting, "WINDOW_S", 60.0)
    monkeypatch.setattr(claiming, "claim", slow)

    async def scene(it: Scene) -> None:
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'a', 't' FROM generate_series(1, 60)")
        await it.round()
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'q' || n, 'unknown' FROM generate_series(1, 5) n")
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


def looks(dsn: str, monkeypatch: pytest.MonkeyPatch, every_s: float = 0.0) -> Scene:
    """A claimer for which any scan of a queue from its start takes long, and that is told of work by hints only."""

    async def nothing(*_: Any, **__: Any) -> Any:
        return [], 120.0

    def paced(one: Cursor, took_s: float, now: float) -> None:
        really(one, took_s, now)
        one._passed, one._quick = one._passed or backlog_pieces.Passed(took_s, now), False

    really = Cursor._paced
    monkeypatch.setattr(Cursor, "_paced", paced)
    monkeypatch.setattr(cursor, "EVERY_S", every_s)
    monkeypatch.setattr(backlog_pieces, "FIRST_PAUSE_S", every_s)
    monkeypatch.setattr(backlog_pieces, "LINK_S", 0.0)
    it = Scene(dsn, monkeypatch, 1)
    monkeypatch.setattr(claiming, "claimable_queues", nothing)
    it.claimer.poll_s, it.claimer._rest = 60.0, resting.Rest(60.0)
    return it


async def leave_behind(it: Scene, db: psycopg.Connection, dsn: str, count: int = 1, queue: str = "default") -> None:
    """Runs that commit when the cursor has passed them already."""
    task = "INSERT INTO pgsched.runs (task, queue) SELECT 't', %s FROM generate_series(1, %s)"
    with psycopg.connect(dsn) as late, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Aside, "look", lambda *_: False)
        late.execute(task, [queue, count])
        db.execute(task, [queue, 1])
        it.free = 1
        it.claimer.hint(queue)
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


async def claims_what_is_late(it: Scene, db: psycopg.Connection, dsn: str) -> None:
    """The claimer finds a run that its cursor has passed."""
    await leave_behind(it, db, dsn)
    it.free = 5
    async with running(it):
        it.claimer.hint("default")
        await becomes(it, 4, "the late run")


async def becomes(it: Scene, free: int, what: str) -> None:
    await asyncio.to_thread(wait_until, lambda: it.free == free, 10, what)


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Answers to what is claimed beside other claims wait for the second event; the first says that one does."""
    really, waits, go = beside.claim, asyncio.Event(), asyncio.Event()

    async def later(*given: Any) -> list[Claim]:
        found = await really(*given)  # what becomes claimable from now on it does not see
        waits.set()
        await go.wait()
        return found

    monkeypatch.setattr(beside, "claim", later)
    return waits, go


@pytest.mark.parametrize("guarded", [True, False])
def test_where_a_queue_takes_long_to_scan_what_its_cursor_passed_is_claimed_beside_other_claims(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, from_the_start = claiming.claim, 0
    it = looks(dsn, monkeypatch, every_s=0.2)
    if not guarded:
        monkeypatch.setattr(Aside, "look", lambda *_: False)

    async def counted(*given: Any) -> list[Claim]:
        nonlocal from_the_start
        from_the_start += given[-1] is FROM_THE_START
        return await really(*given)

    async def scene(it: Scene) -> None:
        monkeypatch.setattr(claiming, "claim", counted)
        await leave_behind(it, db, dsn)
        until, it.free, made = time.monotonic() + (10 if guarded else 1), 1_000_000, 0
        async with running(it):
            while time.monotonic() < until and it.free >= 1_000_000 - made:
                await asyncio.to_thread(db.execute, "INSERT INTO pgsched.runs (task) VALUES ('t')")
                made += 1
                it.claimer.hint("default")
                await asyncio.sleep(0.02)
        assert (it.free < 1_000_000 - made) is guarded
        assert from_the_start == 1

    play(it, scene)


@pytest.mark.parametrize("problem", [None, psycopg.OperationalError("too many clients"), RuntimeError("no thread")])
def test_what_the_cursor_passed_is_claimed_also_if_it_cannot_be_claimed_beside(
    problem: Exception | None, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, timeouts = beside.aconnect, set()

    async def refuse(*given: Any, **options: Any) -> Any:
        timeouts.add(options["timeout_s"])
        if problem is None:
            return await really(*given, **options)
        await asyncio.sleep(0.2)
        raise problem

    monkeypatch.setattr(beside, "aconnect", refuse)

    async def scene(it: Scene) -> None:
        await claims_what_is_late(it, db, dsn)
        assert timeouts == {it.claimer.wanted.lease_s / 2}, "then its first renewal comes in time"

    play(looks(dsn, monkeypatch), scene)


def test_what_was_claimed_beside_is_found_although_its_answer_was_lost(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, lost = beside.claim, []

    async def unheard(*given: Any) -> list[Claim]:
        lost.extend(await really(*given))
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(beside, "claim", unheard)

    async def scene(it: Scene) -> None:
        await claims_what_is_late(it, db, dsn)
        assert [claim.id for claim in lost] == [1]

    play(looks(dsn, monkeypatch), scene)


@pytest.mark.parametrize("closing", [False, True])
def test_a_bug_in_taking_what_was_claimed_beside_ends_the_claimer(
    closing: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took is nobody's until the lease is over: that must not go on unseen. One that ends anyway
    has outcomes to write, which must not be lost for it."""
    failed = asyncio.Event()

    def fail(*_: Any) -> None:
        failed.set()
        raise ZeroDivisionError

    async def scene(it: Scene) -> None:
        await leave_behind(it, db, dsn)
        it.free, it.claimer._aside.on_claims = 5, fail
        it.claimer.hint("default")
        async with asyncio.timeout(10):
            if closing:
                await it.round()
                await failed.wait()
                await it.claimer.close()
                return
            with pytest.raises(ZeroDivisionError):
                await it.claimer.run()

    play(looks(dsn, monkeypatch), scene)


def test_a_connection_that_is_opened_again_has_its_way_measured_anew(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        it.claimer.hint("default")
        await it.round()
        one = it.claimer._cursors["default"]
        assert one._way_is_known
        await it.claimer._disconnect()
        it.claimer.hint("elsewhere")
        await it.round()
        assert not one._way_is_known

    play(looks(dsn, monkeypatch), scene)


def test_a_scan_from_the_start_that_has_no_answer_is_not_tried_again_where_there_are_pieces(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*_: Any) -> list[Claim]:
        raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")

    async def scene(it: Scene) -> None:
        one = it.claimer._cursors["default"]
        one._passed = backlog_pieces.Passed(1.0, 0.0)
        one.not_looked(0.0, 0.0)
        assert not one.aside
        monkeypatch.setattr(claiming, "claim", cancelled)
        it.claimer.hint("default")
        with pytest.raises(psycopg.errors.QueryCanceled):
            await it.claimer._round()
        assert one.aside

    play(looks(dsn, monkeypatch), scene)


def test_what_becomes_claimable_while_it_looks_is_looked_for_again(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        waits, go = held_up(monkeypatch)
        await leave_behind(it, db, dsn)
        async with running(it):
            it.free = 10
            it.claimer.hint("default")
            await waits.wait()
            db.execute("INSERT INTO pgsched.runs (task, available_at) VALUES ('t', now() - interval '1 minute')")
            it.claimer.hint("default")
            await asyncio.sleep(0.2)
            go.set()
            await becomes(it, 8, "both")

    play(looks(dsn, monkeypatch, every_s=0.3), scene)


def test_half_of_the_room_is_kept_for_a_look_which_goes_on_while_it_finds_as_many(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        waits, go = held_up(monkeypatch)
        await leave_behind(it, db, dsn, count=4)
        async with running(it):
            it.free = 5
            it.claimer.hint("default")
            await waits.wait()
            assert it.claimer.room() == 2
            go.set()
            await becomes(it, 1, "all four, first three of them")

    play(looks(dsn, monkeypatch), scene)


@pytest.mark.parametrize("free", [1, 4])
def test_no_more_is_claimed_than_there_is_room_for_with_what_is_claimed_beside(
    free: int, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        waits, go = held_up(monkeypatch)
        await leave_behind(it, db, dsn, count=4)
        db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 10)")
        it.free = free
        async with running(it):
            it.claimer.hint("default")
            await waits.wait()
            go.set()
            await becomes(it, 0, "as many as there is room for")
            await asyncio.sleep(0.2)
        assert it.free == 0

    play(looks(dsn, monkeypatch), scene)


def test_one_that_had_no_room_beside_a_look_goes_on_after_it(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        waits, go = held_up(monkeypatch)
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
        it.claimer.hint("default")
        await it.round()
        async with running(it):
            it.free = 1
            it.claimer.hint("default")
            await waits.wait()
            db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
            it.claimer.hint("default")
            await asyncio.sleep(0.2)
            assert it.free == 1
            go.set()
            await becomes(it, 0, "the new run")

    play(looks(dsn, monkeypatch, every_s=60.0), scene)


def test_queues_are_looked_at_one_after_the_other(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        waits, go = held_up(monkeypatch)
        for queue in "abc":
            await leave_behind(it, db, dsn, queue=queue)
        async with running(it):
            it.free = 50
            for queue in "abc":
                it.claimer.hint(queue)
            await waits.wait()
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgsched aside%'"
            assert db.execute(sessions).fetchone() == (1,)
            go.set()
            await becomes(it, 47, "one of each")

    play(looks(dsn, monkeypatch), scene)


def test_a_look_ends_with_the_claimer_and_what_it_took_is_found(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(it: Scene) -> None:
        waits, _ = held_up(monkeypatch)
        await leave_behind(it, db, dsn)
        it.free = 5
        it.claimer.hint("default")
        await it.round()
        async with asyncio.timeout(10):
            await waits.wait()
            await it.claimer.close()
        assert it.free == 4
        assert it.claimer.room() == 4

    play(looks(dsn, monkeypatch), scene)
