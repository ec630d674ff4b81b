"""Barriers hold all who wait; double barriers open and close for exactly n, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pgsched import App
from pgsched.errors import InputError, LeaseLost, PgschedError
from pgsched.recipes.watch import Change, Watch
from tests.support.recipes.bound_keys import Db, number, open_session
from tests.support.waiting import wait_until


def members(app: App) -> int:
    return len(app.kv.list("d/barrier/"))


def is_open(app: App) -> bool:
    entry = app.kv.get("d/barrier")
    return entry is not None and entry.value["open"]


def enter_by_sql(db: Db, session: uuid.UUID, size: int) -> bool:
    """Enter as a process that dies then; return whether the barrier is open."""
    return bool(number(db, "SELECT open FROM pgsched.barrier_enter('d', gen_random_uuid(), %s, %s)", size, session))


# ---- barriers


def test_all_wait_at_a_barrier_until_it_is_removed(app: App) -> None:
    barrier = app.barrier("b")
    assert not barrier.is_set()
    barrier.wait(0)
    assert barrier.set() and not barrier.set() and barrier.is_set()
    with ThreadPoolExecutor(5) as pool:
        waits = [pool.submit(app.barrier("b").wait, 20) for _ in range(5)]
        with pytest.raises(TimeoutError):
            barrier.wait(0.1)
        app.kv.put("b2", 1)
        assert not any(wait.done() for wait in waits)
        assert barrier.remove() and not barrier.remove()
        for wait in waits:
            wait.result(20)


def test_a_barrier_that_is_set_again_lets_those_go_on_who_waited(app: App) -> None:
    barrier = app.barrier("b")
    barrier.set()
    with ThreadPoolExecutor(1) as pool, app.watch("b", timeout=20) as watch:
        waiting = pool.submit(barrier.wait, 20)
        with pytest.raises(TimeoutError):
            barrier.wait(0.2)
        barrier.remove()
        assert next(watch).kind == "deleted"
        waiting.result(20)
        barrier.set()
    assert barrier.is_set()


def test_a_barrier_in_asyncio(app: App) -> None:
    async def main() -> None:
        barrier = app.barrier("b")
        await barrier.wait_async()
        assert await barrier.set_async() and await barrier.is_set_async()
        waits = asyncio.gather(*(app.barrier("b").wait_async(20) for _ in range(5)))
        with pytest.raises(TimeoutError):
            await barrier.wait_async(0.1)
        assert await barrier.remove_async()
        await waits

    asyncio.run(main())


# ---- double barriers


def test_a_double_barrier_opens_and_closes_for_exactly_n(app: App, dsn: str) -> None:
    """With seven members for three there are two rounds, and one member waits."""
    others = [App(f"other{n}", dsn=dsn) for n in range(2)]
    lock, inside, most, rounds = threading.Lock(), 0, 0, list[int]()
    three = threading.Barrier(3)

    def member(n: int) -> None:
        nonlocal inside, most
        barrier = others[n % 2].double_barrier("d", 3, timeout=20)
        barrier.enter()
        with lock:
            inside += 1
            most = max(most, inside)
        three.wait(20)  # all three are inside at the same time
        with lock:
            inside -= 1
        barrier.leave()
        with lock:
            rounds.append(inside)

    with ThreadPoolExecutor(7) as pool:
        done = [pool.submit(member, n) for n in range(7)]
        wait_until(lambda: sum(one.done() for one in done) == 6, 20, "two rounds")
        wait_until(lambda: members(app) == 1, 10)
        assert most == 3
        assert not is_open(app)
        three.reset()
        for _ in range(2):
            done.append(pool.submit(member, 0))
        for one in done:
            one.result(20)
    assert app.kv.list("d") == [], "nothing stays behind"
    for other in others:
        other.close()


def test_one_too_many_waits_for_the_next_round(app: App) -> None:
    with ThreadPoolExecutor(3) as pool:
        first, second, third = (app.double_barrier("d", 2, timeout=20) for _ in range(3))
        entering = [pool.submit(one.enter) for one in (first, second)]
        for one in entering:
            one.result(20)
        with pytest.raises(TimeoutError):
            third.enter(0.1)
        assert members(app) == 2
        waiting = pool.submit(third.enter)
        leaving = pool.submit(first.leave)
        wait_until(lambda: members(app) == 1, 10)
        assert not leaving.done() and not waiting.done()
        second.leave()
        leaving.result(20)
        first.enter()
        waiting.result(20)
        assert is_open(app)
        for one in [pool.submit(one.leave) for one in (first, third)]:
            one.result(20)


def test_a_member_that_dies_before_it_opens_is_not_counted(app: App, db: Db) -> None:
    assert not enter_by_sql(db, open_session(db), 2)
    with ThreadPoolExecutor(2) as pool:
        wait_until(lambda: members(app) == 0, 10, "the end of its session")
        entering = pool.submit(app.double_barrier("d", 2).enter, 20)
        wait_until(lambda: members(app) == 1, 10)
        assert not is_open(app)
        second = app.double_barrier("d", 2).enter(20)
        first = entering.result(20)
        for one in [pool.submit(one.leave, 20) for one in (first, second)]:
            one.result(20)


@pytest.mark.long
def test_a_member_that_dies_after_it_opened_has_left(app: App, db: Db) -> None:
    session = open_session(db)
    assert not enter_by_sql(db, session, 3)
    assert not enter_by_sql(db, session, 3)
    barrier = app.double_barrier("d", 3, timeout=20).enter()
    assert is_open(app)
    barrier.leave()
    assert not is_open(app)


def test_a_round_is_over_when_the_last_member_has_died(app: App, db: Db) -> None:
    assert enter_by_sql(db, open_session(db), 1)
    app.double_barrier("d", 1).enter(20).leave(20)


def test_who_gives_up_waiting_does_not_count(app: App) -> None:
    barrier = app.double_barrier("d", 2, timeout=0.1)
    with pytest.raises(TimeoutError):
        barrier.enter()
    assert members(app) == 0
    with pytest.raises(TimeoutError):
        barrier.enter(timeout=0)
    assert app.kv.list("d") == [], "nothing stays behind"


def test_who_gives_up_when_it_has_just_opened_is_inside(app: App, db: Db) -> None:
    token, session = uuid.uuid4(), open_session(db, "1 h")
    enter, withdraw = (
        "SELECT open FROM pgsched.barrier_enter('d', %s, 2, %s)",
        "SELECT pgsched.barrier_withdraw('d', %s)",
    )
    assert not number(db, enter, token, session)
    assert number(db, withdraw, token) and number(db, withdraw, token)
    assert not number(db, enter, token, session)
    assert enter_by_sql(db, session, 2)
    assert not number(db, withdraw, token)
    assert number(db, enter, token, session), "asked again, the answer is the same"
    assert members(app) == 2


def test_a_block_that_fails_leaves_without_waiting_for_the_others(app: App) -> None:
    with ThreadPoolExecutor(2) as pool:
        other = app.double_barrier("d", 2, timeout=20)
        entering: Future[Any] = pool.submit(other.enter)
        with pytest.raises(ZeroDivisionError), app.double_barrier("d", 2, timeout=20):
            entering.result(20)
            raise ZeroDivisionError
        assert members(app) == 1
        other.leave()


def test_leaving_may_be_waited_for_again(app: App) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = (app.double_barrier("d", 2, timeout=20) for _ in range(2))
        entering = pool.submit(first.enter)
        second.enter()
        entering.result(20)
        with pytest.raises(TimeoutError):
            first.leave(0.1)
        with pytest.raises(InputError, match="has to leave"):
            first.enter()
        second.leave()
        first.leave()
        with pytest.raises(InputError, match="has not entered"):
            first.leave()


def test_a_member_enters_again_when_its_session_is_lost_while_it_waits(app: App, db: Db) -> None:
    barrier = app.double_barrier("d", 2, ttl=2, timeout=20)
    with ThreadPoolExecutor(1) as pool:
        entering = pool.submit(barrier.enter)
        wait_until(lambda: members(app) == 1, 10)
        old = number(db, "SELECT session FROM pgsched.store WHERE session IS NOT NULL")
        db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp()")
        new = "SELECT count(*) FROM pgsched.store WHERE session > %s"
        wait_until(lambda: number(db, new, old) == 1, 10, "a key of the new session")
        other = app.double_barrier("d", 2, timeout=20).enter()
        entering.result(20)
        db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp() WHERE ttl = '2 s'")
        wait_until(lambda: barrier.lost, 10)
        other.leave()
        with pytest.raises(LeaseLost):
            barrier.leave()


def test_all_members_give_the_same_size(app: App, db: Db) -> None:
    assert not enter_by_sql(db, open_session(db, "1 h"), 3)
    with pytest.raises(InputError, match=r"^size: others wait at \"d\" for 3"):
        app.double_barrier("d", 2).enter(20)
    assert members(app) == 1


@pytest.mark.parametrize(
    "value", [1, {"open": "x", "round": 1, "size": 1}, {"open": True, "round": 1e300, "size": 1}, {}]
)
def test_a_key_that_is_no_barrier_is_refused(app: App, value: Any) -> None:
    app.kv.put("d/barrier", value)
    with pytest.raises(InputError, match=r"^name: the value of key"):
        app.double_barrier("d", 1).enter(20)


def test_a_barrier_goes_on_although_its_state_was_deleted(app: App) -> None:
    barrier = app.double_barrier("d", 1).enter(20)
    app.kv.delete("d/barrier")
    barrier.leave(20)
    app.double_barrier("d", 1).enter(20).leave(20)


def test_a_double_barrier_in_asyncio(app: App) -> None:
    async def main() -> None:
        inside, together = 0, asyncio.Event()

        async def member() -> None:
            nonlocal inside
            async with app.double_barrier("d", 5, timeout=20):
                inside += 1
                if inside == 5:
                    together.set()
                await asyncio.wait_for(together.wait(), 20)

        await asyncio.gather(*(member() for _ in range(5)))
        assert await app.kv.list_async("d/barrier/") == []
        with pytest.raises(TimeoutError):
            await app.double_barrier("d", 2).enter_async(0.05)
        waiting = asyncio.ensure_future(app.double_barrier("d", 2).enter_async())
        await asyncio.to_thread(wait_until, lambda: members(app) == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.to_thread(wait_until, lambda: members(app) == 0)

    asyncio.run(main())


def test_all_that_waits_at_a_barrier_ends_with_the_app(app: App, dsn: str) -> None:
    other = App("other", dsn=dsn)
    app.barrier("b").set()
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(other.barrier("b").wait), pool.submit(other.double_barrier("d", 2).enter)]
        wait_until(lambda: app.kv.list("d/barrier/"), 10)
        other.close()
        for wait in waits:
            with pytest.raises(PgschedError, match="App was closed"):
                wait.result(10)


def test_a_member_that_hears_late_of_the_end_of_its_app_opens_no_session(
    app: App, dsn: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its session is lost, too, which otherwise is the reason to enter with another one."""
    closed, wait_for_change = threading.Event(), Watch.next_item

    def hear_late(watch: Watch, *given: Any) -> Change | None:
        change = wait_for_change(watch, *given)
        if change is None:
            closed.wait(10)
        return change

    monkeypatch.setattr(Watch, "next_item", hear_late)
    other = App("other", dsn=dsn)
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(other.double_barrier("d", 2).enter)
        wait_until(lambda: members(app) == 1, 10)
        other.close()
        closed.set()
        with pytest.raises(PgschedError, match="App was closed"):
            wait.result(10)
    assert number(db, "SELECT count(*) FROM pgsched.sessions WHERE ended_at IS NULL") == 0
