"""The asyncio connections that an App opens: a few for each event loop, which its tasks share."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from pgsched import App, DatabaseUnreachable
from pgsched.app.task import Task
from pgsched.db.connection.connect import aconnect
from pgsched.db.connection.loop_pools import LoopPools
from tests.support.apps.app_pool import OURS, closers, runs, sessions
from tests.support.waiting import wait_until


@pytest.fixture
def task(app: App) -> Task[Any, Any]:
    @app.task(name="one")
    def one(n: int) -> None: ...

    return one


@pytest.mark.long
def test_a_thousand_tasks_share_the_connections_of_their_loop(
    task: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        await asyncio.gather(*[task.enqueue_async(n) for n in range(1000)])
        assert 1 <= len(sessions(db)) <= 4
        await task.app.close_async()

    asyncio.run(main())
    assert runs(db) == list(range(1000))
    wait_until(lambda: not sessions(db), what="closed connections")


def test_a_task_that_finds_no_connection_for_too_long_gets_an_error(dsn: str) -> None:
    async def main() -> None:
        pools = LoopPools(lambda: aconnect(dsn), 1, patience_s=0.05)
        taken, go_on = asyncio.Event(), asyncio.Event()

        async def hold(_: Any) -> None:
            taken.set()
            await go_on.wait()

        async def ask(conn: Any) -> Any:
            return await (await conn.execute("SELECT 1")).fetchone()

        holder = asyncio.create_task(pools.use(hold))
        await taken.wait()
        with pytest.raises(DatabaseUnreachable, match=r"give App\(pool_size=\.\.\.\) more"):
            await pools.use(ask)
        go_on.set()
        await holder
        assert await pools.use(ask) == (1,)
        pools.close()

    asyncio.run(main())


def test_idle_connections_of_a_loop_are_closed_without_a_thread(dsn: str, db: psycopg.Connection[Any]) -> None:
    async def main() -> None:
        pools = LoopPools(lambda: aconnect(dsn, purpose="enqueue"), 4, idle_s=0.1)
        await asyncio.gather(*[pools.use(lambda conn: conn.execute("SELECT pg_sleep(0.05)")) for _ in range(3)])
        assert sessions(db) and not closers()
        while sessions(db):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.02)
        await pools.use(lambda conn: conn.execute("SELECT 1"))
        pools.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_loop_that_is_closed_leaves_no_session(task: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    """A script that calls asyncio.run again and again does not close the App each time."""
    kept = []
    for n in range(5):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(task.enqueue_async(n))
        loop.close()
        kept.append(loop)
    assert len(sessions(db)) <= 2
    task.app.close()
    wait_until(lambda: not sessions(db), what="closed connections")
    assert runs(db) == list(range(5))


def test_close_closes_the_connections_of_a_loop_that_does_not_run(
    task: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    """As in tests, where a fixture gives the App another database between two uses of one loop."""
    with asyncio.Runner() as runner:
        runner.run(task.enqueue_async(0))
        assert len(sessions(db)) == 1
        task.app.close()
        wait_until(lambda: not sessions(db), what="closed connections")
        runner.run(task.enqueue_async(1))
    task.app.close()
    assert runs(db) == [0, 1]


def test_a_task_that_is_cancelled_gives_its_connection_back(
    dsn: str, task: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    """Cancelled while it waits for the server, in a transaction, and while it waits for a connection."""

    async def sleep(conn: Any) -> None:
        await conn.execute("SELECT pg_sleep(30)")

    async def sleep_in_transaction(conn: Any) -> None:
        async with conn.transaction():
            await conn.execute("SELECT pg_sleep(30)")

    async def begin(conn: Any) -> None:
        await conn.execute("BEGIN")
        await asyncio.sleep(30)

    async def main() -> None:
        database = task.app.database
        for call in (sleep, sleep_in_transaction, begin):
            doing = [asyncio.create_task(database.send_async(None, call)) for _ in range(10)]
            while len(busy(db)) < 4:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
            for one in reversed(doing):
                one.cancel()
            found = await asyncio.gather(*doing, return_exceptions=True)
            assert {type(one) for one in found} == {asyncio.CancelledError}
            await asyncio.gather(*[task.enqueue_async(n) for n in range(10)])
        await task.app.close_async()

    def busy(conn: psycopg.Connection[Any]) -> list[Any]:
        return conn.execute(f"SELECT state {OURS} AND state <> 'idle'").fetchall()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert len(runs(db)) == 30


def test_a_task_that_is_cancelled_when_it_is_served_passes_the_connection_on(dsn: str) -> None:
    async def main() -> None:
        pools = LoopPools(lambda: aconnect(dsn), 1)
        taken, go_on = asyncio.Event(), asyncio.Event()

        async def hold(_: Any) -> None:
            taken.set()
            await go_on.wait()

        async def ask(conn: Any) -> Any:
            return await (await conn.execute("SELECT 1")).fetchone()

        holder = asyncio.create_task(pools.use(hold))
        await taken.wait()
        second, third = asyncio.create_task(pools.use(ask)), asyncio.create_task(pools.use(ask))
        await asyncio.sleep(0)  # both wait now
        go_on.set()
        await holder  # the second one is served, and has not noticed yet
        second.cancel()
        assert await third == (1,)
        with pytest.raises(asyncio.CancelledError):
            await second
        pools.close()

    asyncio.run(asyncio.wait_for(main(), 20))
