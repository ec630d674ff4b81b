"""Nothing stays behind of a wait that was interrupted, cancelled, timed out or cut off, wherever that happened."""

from __future__ import annotations

import asyncio
import dis
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.chaos.site.proxy import Proxy
from pgsched.errors import DatabaseUnreachable
from pgsched.recipes.lock import Lock
from tests.support.recipes.bound_keys import number
from tests.support.recipes.lines import another, in_threads, line, running, wait_for_nothing, wait_in_line
from tests.support.sessions import BLOCKED, SESSIONS
from tests.support.waiting import wait_until

Db = psycopg.Connection[Any]
Connect = Callable[..., Db]


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as running:
        yield running


@pytest.fixture
def far(proxy: Proxy) -> Iterator[App]:
    """An App that reaches the database through the proxy."""
    app = App("far", dsn=proxy.dsn)
    yield app
    app.close()


# After these instructions, and nowhere else, the interpreter looks for signals.
LOOKS_FOR_SIGNALS = {"RESUME", "JUMP_BACKWARD", "CALL", "CALL_KW", "CALL_FUNCTION_EX"}


@contextmanager
def interrupted_at(step: int) -> Iterator[list[str]]:
    """Raise KeyboardInterrupt where a signal may be seen for the `step`-th time in the code of recipes, in this thread.

    The list says where that was.
    """
    where: list[str] = []
    last: dict[FrameType, str] = {}
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        code: CodeType = frame.f_code
        if "/pgsched/recipes/" not in code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            if last.get(frame) in LOOKS_FOR_SIGNALS and not where:
                left -= 1
                if left < 0:
                    where.append(f"{code.co_qualname}:{frame.f_lineno}")
                    raise KeyboardInterrupt
            last[frame] = dis.opname[code.co_code[frame.f_lasti]]
        return trace

    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(None)


def test_an_interrupted_acquire_leaves_nothing_behind_wherever_it_is_interrupted(app: App, db: Db) -> None:
    app.lock("warm").acquire().release()
    mine, step = app.lock("a"), 0
    while True:
        with interrupted_at(step) as where, suppress(KeyboardInterrupt):
            mine.acquire(5)
        if not where:
            break
        if mine.is_held:  # at the very end: the object says so
            mine.release()
        step += 1
        assert mine.acquire(20).is_held, where
        mine.release()
    assert step > 30
    mine.release()
    wait_for_nothing(db)


def test_an_interrupted_release_gives_it_back_or_can_be_repeated(app: App, db: Db) -> None:
    mine, step = app.lock("a"), 0
    while True:
        mine.acquire(20)
        with interrupted_at(step) as where, suppress(KeyboardInterrupt):
            mine.release()
        if not where:
            break
        if mine.is_held:
            mine.release()
        step += 1
    assert step > 10
    wait_for_nothing(db)


def test_an_interrupted_wait_leaves_the_line(dsn: str, app: App, db: Db) -> None:
    text = """
try:
    app.lock('a').acquire()
except KeyboardInterrupt:
    say('interrupted')
    time.sleep(60)
"""
    with app.lock("a"), running(dsn, text) as process:
        wait_in_line(db, 2)
        process.send_signal(2)
        assert process.stdout is not None and process.stdout.readline() == "interrupted\n"
        wait_in_line(db, 1)


def test_a_cancelled_acquire_leaves_nothing_behind_wherever_it_is_cancelled(app: App, dsn: str, db: Db) -> None:
    """The task is cancelled after each number of turns of the loop, while the lock is free, and while it is held."""

    async def cancelled_after(lock: Lock, turns: int) -> bool:
        task = asyncio.create_task(lock.acquire_async(20))
        for _ in range(turns):
            if task.done():
                break
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await lock.release_async()
        return task.cancelled()

    async def main() -> None:
        with another(dsn) as (other,):
            turns = 0
            while await cancelled_after(app.lock("a"), turns):
                turns += 1
            assert turns > 1
            async with other.lock("a"):
                for turns in range(0, 30, 3):
                    assert await cancelled_after(app.lock("a"), turns)
                await asyncio.to_thread(wait_in_line, db, 1)

    asyncio.run(main())
    wait_for_nothing(db)


def test_a_cancelled_wait_leaves_the_line_and_the_object_can_be_used_again(app: App, dsn: str, db: Db) -> None:
    async def main() -> None:
        with another(dsn) as (other,):
            mine, its = app.lock("a"), other.lock("a")
            await its.acquire_async()
            for _ in range(3):
                waits = asyncio.create_task(mine.acquire_async())
                await asyncio.to_thread(wait_in_line, db, 2)
                waits.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waits
                await asyncio.to_thread(wait_in_line, db, 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await mine.acquire_async()
            await its.release_async()
            async with mine:
                pass

    asyncio.run(main())
    wait_for_nothing(db)


def test_a_cancellation_that_comes_with_the_grant_is_not_swallowed(app: App, dsn: str, db: Db) -> None:
    async def main() -> None:
        with another(dsn) as (other,):
            for _ in range(10):
                its = await other.lock("a").acquire_async()
                waits = asyncio.create_task(app.lock("a").acquire_async())
                await asyncio.to_thread(wait_in_line, db, 2)
                its.release()  # blocks the loop: the grant and the cancellation come in one turn
                time.sleep(0.02)  # noqa: ASYNC251
                waits.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waits
        await asyncio.to_thread(wait_for_nothing, db)

    asyncio.run(main())


def test_a_cancelled_release_gives_it_back(app: App, db: Db) -> None:
    async def main() -> None:
        for turns in range(4):
            mine = await app.lock("a").acquire_async(20)
            task = asyncio.create_task(mine.release_async())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if mine.is_held:  # cancelled before it began
                await mine.release_async()

    asyncio.run(main())
    wait_for_nothing(db)


@pytest.mark.parametrize("given", ["before the grant", "by the grant"])
def test_a_loop_that_is_closed_over_a_wait_leaves_nothing_behind(app: App, dsn: str, db: Db, given: str) -> None:
    """Its task stands still for ever; it is neither cancelled nor collected."""
    with another(dsn) as (other,):
        its = other.lock("a").acquire()
        loop = asyncio.new_event_loop()
        task = loop.create_task(app.lock("a", ttl=1 if given == "before the grant" else 3600).acquire_async())
        loop.run_until_complete(asyncio.wait([loop.create_task(asyncio.to_thread(wait_in_line, db, 2))]))
        loop.close()
        if given == "before the grant":
            wait_in_line(db, 1)
        its.release()
        its.acquire(10).release()
        del task


def test_a_call_that_was_cancelled_while_the_line_was_locked_leaves_nothing_behind(
    app: App, db: Db, connect: Connect
) -> None:
    """The statement goes on in its thread, and gets the place after its caller has left."""

    async def main() -> None:
        with connect(autocommit=False) as other:
            other.execute("SELECT FROM pgsched.locks WHERE name = 'a' FOR UPDATE")
            task = asyncio.create_task(app.lock("a").acquire_async())
            await asyncio.to_thread(wait_until, lambda: number(db, BLOCKED), 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.to_thread(wait_for_nothing, db)

    app.lock("a").acquire().release()
    asyncio.run(main())
    made = "SELECT last_place FROM pgsched.locks WHERE name = 'a'"
    wait_until(lambda: db.execute(made).fetchone() == (2,), 10, "the statement to be done")
    wait_for_nothing(db)


def test_a_lost_answer_is_asked_again_with_the_same_token(far: App, proxy: Proxy, db: Db) -> None:
    far.lock("warm").acquire().release()
    loss = proxy.lose_answer("lock_acquire", times=2)
    with far.lock("a") as mine:
        assert loss.done == 2
        assert mine.is_held and line(db) == [True]
    assert line(db) == []


def test_a_lost_answer_of_a_release_is_no_lost_lock(far: App, proxy: Proxy, db: Db) -> None:
    mine = far.lock("a").acquire()
    loss = proxy.lose_answer("lock_release")
    mine.release()
    assert loss.done == 1
    wait_for_nothing(db)


def test_what_could_not_be_given_back_is_given_back_later(far: App, proxy: Proxy, db: Db) -> None:
    mine = far.lock("a", ttl=60).acquire()
    loss = proxy.lose_answer("lock_release", "before", times=4)
    with pytest.raises(DatabaseUnreachable):
        mine.release()
    assert not mine.is_held
    wait_for_nothing(db)
    assert loss.done == 4, "the keeper's first call was lost as well"


@pytest.mark.long
def test_a_place_that_a_late_call_gets_after_the_caller_has_gone_is_given_back(
    far: App, proxy: Proxy, db: Db, connect: Connect
) -> None:
    """The connections are cut while the call waits in the server for the line: it gets the place after all."""
    far.lock("a").acquire().release()
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.locks WHERE name = 'a' FOR UPDATE")
        with in_threads(far.lock("a"), timeout=2.5) as (waits,):
            wait_until(lambda: number(db, f"{BLOCKED} AND query LIKE '%lock_acquire%'"), 10)
            proxy.refuse()
            proxy.cut()
            with pytest.raises(DatabaseUnreachable):
                waits.result(20)
            proxy.heal()
            released = f"{SESSIONS} AND application_name LIKE 'pgsched leases%'"
            wait_until(lambda: number(db, released), 20, "the keeper to be connected again")
            wait_until(lambda: number(db, f"{released} AND query LIKE '%lock_release%'"), 10)
        assert db.execute("SELECT last_place FROM pgsched.locks WHERE name = 'a'").fetchone() == (1,)
    wait_until(lambda: db.execute("SELECT last_place FROM pgsched.locks WHERE name = 'a'").fetchone() == (2,), 10)
    wait_for_nothing(db, 20)


@pytest.mark.long
def test_a_locked_line_lets_nobody_wait_for_longer_than_he_wants_to(app: App, db: Db, connect: Connect) -> None:
    app.lock("a").acquire().release()
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.locks WHERE name = 'a' FOR UPDATE")
        for timeout in (0, 0.3):
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                app.lock("a").acquire(timeout)
            assert time.monotonic() - began < 6, "the setting of the session is ten seconds"
        with in_threads(app.lock("a"), timeout=None) as (waits,):
            wait_until(lambda: number(db, BLOCKED), 10)
            other.rollback()
            waits.result(10).release()
    assert line(db) == []


@pytest.mark.long
def test_a_release_that_met_a_locked_line_is_made_up_for(app: App, db: Db, connect: Connect) -> None:
    """Meanwhile the session is renewed: the keeper waits for nobody."""
    renewed = "SELECT lease_until > clock_timestamp() + interval '2.5 s' FROM pgsched.sessions WHERE ended_at IS NULL"

    async def main() -> None:
        mine, also = await app.lock("a", ttl=3).acquire_async(), await app.lock("b", ttl=3).acquire_async()
        with connect(autocommit=False) as other:
            other.execute("SELECT FROM pgsched.locks WHERE name = 'a' FOR UPDATE")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await mine.release_async()
            for _ in range(2):
                await asyncio.to_thread(wait_until, lambda: db.execute(renewed).fetchone() == (False,), 5)
                await asyncio.to_thread(wait_until, lambda: db.execute(renewed).fetchone() == (True,), 5)
            assert also.is_held and not mine.is_held and line(db) == [True]
        await asyncio.to_thread(wait_until, lambda: line(db) == [], 10)
        await also.release_async()

    asyncio.run(main())
