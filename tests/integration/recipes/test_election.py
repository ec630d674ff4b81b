"""Elections: one leader at a time, whose term's number rises, and who hears that it leads no more; two threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
import pytest

from pgsched import App, LeaseLost
from pgsched.recipes.election import Election
from pgsched.recipes.lock import Lock
from tests.support.recipes.lines import another, asserted, end_leases, in_threads, line, wait_for_nothing, wait_in_line

Db = psycopg.Connection[Any]


def test_one_leads_and_the_others_follow_in_their_order(app: App, dsn: str, db: Db) -> None:
    with another(dsn) as (other,):
        with app.election("a") as term, in_threads(other.election("a"), timeout=30) as (waits,):
            wait_in_line(db, 2)
            first = term.term
            assert first == term.fence and asserted(db, first, "a")
            assert not waits.done()
            term.release()
            follower = waits.result(10)
            assert isinstance(follower, Election) and follower.term > first
            assert not asserted(db, first)
            follower.release()
            term.acquire()
        assert line(db) == []


def test_run_leads_and_resigns_and_returns_what_was_returned(app: App, db: Db) -> None:
    def lead(mine: Election) -> int:
        assert line(db) == [True]
        return mine.term

    async def lead_async(mine: Election) -> int:
        return lead(mine)

    first = app.election("a").run(lead)
    assert asyncio.run(app.election("a").run_async(lead_async)) > first
    with pytest.raises(ZeroDivisionError):
        app.election("a").run(lambda _: 1 // 0)
    assert line(db) == []


def test_a_leader_that_was_cut_off_hears_of_it_and_fails(app: App, db: Db) -> None:
    def lead(mine: Election) -> str:
        end_leases(db)
        assert mine.wait_lost(10)
        return "done"

    with pytest.raises(LeaseLost):
        app.election("a", ttl=1).run(lead)


def test_asyncio_leads_in_a_block(app: App, db: Db) -> None:
    async def main() -> None:
        async with app.election("a") as term:
            assert term.term == term.fence and line(db) == [True]
        with pytest.raises(TimeoutError):
            async with app.election("a"):
                await app.election("a").acquire_async(0)

    asyncio.run(main())
    assert line(db) == []


def test_two_threads_that_give_one_grant_back_do_so_once(app: App, db: Db) -> None:
    for _ in range(10):
        mine, errors = app.lock("a").acquire(), list[type[BaseException]]()
        gate = threading.Barrier(2)

        def release(mine: Lock = mine, gate: threading.Barrier = gate, errors: Any = errors) -> None:
            gate.wait()
            try:
                mine.release()
            except Exception as error:
                errors.append(type(error))

        threads = [threading.Thread(target=release) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(errors) == 1 and not issubclass(errors[0], LeaseLost)
    wait_for_nothing(db)
