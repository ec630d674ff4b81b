"""Many asyncio calls of handles at once: they share a few threads, and a cancelled call costs nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from pgsched import App, DatabaseUnreachable, State
from pgsched.db.connection.connect import CONNECT_ATTEMPTS
from tests.support.workers import becomes

Connect = Callable[..., psycopg.Connection[Any]]
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def app(dsn: str, db: psycopg.Connection[Any]) -> Iterator[App]:
    app = App("shop", dsn=dsn, pool_size=2)
    yield app
    app.close()


def test_calls_at_once_start_no_more_threads_than_the_pool_has_connections(
    app: App, db: psycopg.Connection[Any], connect: Connect
) -> None:
    run = app.enqueue("t")

    async def main() -> None:
        before = threading.active_count()
        with connect(autocommit=False) as other:
            other.execute("SELECT FROM pgsched.runs FOR UPDATE")
            calls = [asyncio.create_task(run.cancel_async()) for _ in range(200)]
            await becomes(lambda: db.execute(BLOCKED).fetchone() == (2,), "two calls wait for the lock")
            assert threading.active_count() - before <= 4, "two, that of `becomes`, and that which closes connections"
        assert set(await asyncio.gather(*calls)) == {State.CANCELLED}

    asyncio.run(main())


def test_a_call_that_is_cancelled_before_its_turn_does_nothing(
    app: App, db: psycopg.Connection[Any], connect: Connect
) -> None:
    held, *others = [app.enqueue("t") for _ in range(10)]

    async def main() -> None:
        with connect(autocommit=False) as other:
            other.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [held])
            first = [asyncio.create_task(held.cancel_async()) for _ in range(2)]
            await becomes(lambda: db.execute(BLOCKED).fetchone() == (2,), "two calls wait for the lock")
            calls = [asyncio.create_task(run.cancel_async()) for run in others]
            await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            assert set(map(type, await asyncio.gather(*calls, return_exceptions=True))) == {asyncio.CancelledError}
        await asyncio.gather(*first)
        assert {await run.state_async() for run in others} == {State.QUEUED}

    asyncio.run(main())


@pytest.mark.long
def test_calls_at_once_fail_together_where_the_server_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as deaf:
        port = deaf.getsockname()[1]
        app = App("shop", dsn=f"host=127.0.0.1 port={port} user=u dbname=d connect_timeout=2", pool_size=2)
        before = CONNECT_ATTEMPTS["enqueue"]

        async def main() -> list[Any]:
            return await asyncio.gather(*(app.run(n).state_async() for n in range(1, 31)), return_exceptions=True)

        errors = asyncio.run(main())
        app.close()
    assert {type(error) for error in errors} == {DatabaseUnreachable}
    assert len({id(error) for error in errors}) == 30, "each caller has an error of its own"
    assert CONNECT_ATTEMPTS["enqueue"] - before <= 2


@pytest.mark.long
def test_many_waits_at_once_start_no_thread_each(app: App) -> None:
    runs = [app.enqueue("t") for _ in range(300)]

    async def main() -> int:
        before = threading.active_count()
        waits = [asyncio.create_task(run.wait_async(timeout=0.5)) for run in runs]
        most = 0
        while not all(wait.done() for wait in waits):
            most = max(most, threading.active_count() - before)
            with suppress(TimeoutError):
                await asyncio.wait(waits, timeout=0.001)
        await asyncio.gather(*waits, return_exceptions=True)
        return most

    assert asyncio.run(main()) <= 6


def test_a_forked_process_makes_calls_of_its_own(app: App, connect: Connect, db: psycopg.Connection[Any]) -> None:
    held, free = app.enqueue("t"), app.enqueue("t")

    async def main() -> None:
        with connect(autocommit=False) as other:
            other.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [held])
            calls = [asyncio.create_task(held.cancel_async()) for _ in range(2)]
            await becomes(lambda: db.execute(BLOCKED).fetchone() == (2,), "all threads of the parent are busy")
            await asyncio.to_thread(fork)
        await asyncio.gather(*calls)

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if asyncio.run(asyncio.wait_for(free.state_async(), 10)) is State.QUEUED else 1)
        assert os.waitpid(pid, 0)[1] == 0

    asyncio.run(main())
