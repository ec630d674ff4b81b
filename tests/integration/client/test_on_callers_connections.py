"""Handles on the caller's connection: part of its transaction, with any driver, immune to the session's settings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from pgsched import App, InputError, NotFound, RunHandle, State
from tests.support.sessions import BLOCKED
from tests.support.workers import becomes

pytestmark = [pytest.mark.packages, pytest.mark.scram]

Opened = Callable[[], AbstractContextManager[Any]]
AsyncOpened = Callable[[], AbstractAsyncContextManager[Any]]


@pytest.fixture
def app(dsn: str, db: psycopg.Connection[Any]) -> Iterator[App]:
    app = App("shop", dsn=dsn)
    yield app
    app.close()


@pytest.fixture
def run(app: App) -> RunHandle[Any]:
    return app.enqueue("t", {"a": [1, None, "x:y"]}, tags=["b"])


def execute(mine: Any, statement: str) -> Any:
    return mine.execute(statement if isinstance(mine, psycopg.Connection) else sa.text(statement))


async def execute_async(mine: Any, statement: str) -> Any:
    found = await mine.execute(statement if isinstance(mine, psycopg.AsyncConnection) else sa.text(statement))
    return (await found.fetchall()) if isinstance(mine, psycopg.AsyncConnection) else found.fetchall()


def test_a_change_is_part_of_the_caller_s_transaction(app: App, run: RunHandle[Any], opened: Opened) -> None:
    with opened() as mine:
        assert run.cancel("why", connection=mine) is State.CANCELLED
        assert run.state(connection=mine) is State.CANCELLED
        assert run.state() is State.QUEUED
        mine.rollback()
        assert run.state() is State.QUEUED
        run.update(priority=1, at=datetime(2040, 1, 1, tzinfo=UTC), connection=mine)
        mine.commit()
    assert (run.info().priority, run.state()) == (1, State.SCHEDULED)


def test_values_are_read_alike_on_every_connection(app: App, run: RunHandle[Any], opened: Opened) -> None:
    expected = run.info()
    with opened() as mine:
        assert run.info(connection=mine) == expected
        assert app.runs(connection=mine, task="t", since="1h", tag="b") == app.runs()
        assert run.logs(connection=mine) == []
        assert run.retry(connection=mine) is State.QUEUED


def test_a_refusal_leaves_the_transaction_usable(app: App, run: RunHandle[Any], opened: Opened) -> None:
    with opened() as mine:
        with pytest.raises(InputError, match="priority: 10 is out of range 0-9") as refused:
            run.update(priority=10, connection=mine)
        assert refused.value.field == "priority"
        with pytest.raises(NotFound):
            app.run(4711).cancel(connection=mine)
        assert execute(mine, "SELECT 1").fetchone()[0] == 1


def test_the_session_s_settings_are_as_before(app: App, run: RunHandle[Any], opened: Opened) -> None:
    show = (
        "SELECT name, setting FROM pg_settings WHERE name IN ('search_path', 'TimeZone', 'DateStyle', 'enable_seqscan')"
    )
    with opened() as mine:
        for statement in (
            "CREATE SCHEMA mine",
            "SET search_path = mine, public",
            "SET TimeZone = 'Asia/Kolkata'",
            "SET DateStyle = 'German'",
        ):
            execute(mine, statement)
        execute(
            mine, "CREATE FUNCTION mine.format(text, VARIADIC \"any\") RETURNS text LANGUAGE sql AS 'SELECT 1/0::text'"
        ) if False else None
        before = [tuple(row) for row in execute(mine, show).fetchall()]
        assert run.info(connection=mine).created_at == run.info().created_at
        app.runs(connection=mine)
        with pytest.raises(InputError):
            run.update(priority=10, connection=mine)
        assert [tuple(row) for row in execute(mine, show).fetchall()] == before


def test_asyncio_connections_do_the_same(app: App, run: RunHandle[Any], opened_async: AsyncOpened) -> None:
    expected = run.info()

    async def main() -> None:
        async with opened_async() as mine:
            assert await run.info_async(connection=mine) == expected
            assert await app.runs_async(connection=mine, task="t", since="1h") == app.runs()
            assert await run.cancel_async("why", connection=mine) is State.CANCELLED
            assert await run.state_async() is State.QUEUED
            await mine.rollback()
            with pytest.raises(InputError, match="priority: 10 is out of range 0-9"):
                await run.update_async(priority=10, connection=mine)
            assert await execute_async(mine, "SELECT 1") == [(1,)]
            await run.update_async(priority=2, connection=mine)
            await mine.commit()

    asyncio.run(main())
    assert run.info().priority == 2


def test_a_call_can_be_cancelled_while_it_waits_for_a_lock(
    run: RunHandle[Any],
    opened_async: AsyncOpened,
    connect: Callable[..., psycopg.Connection[Any]],
    db: psycopg.Connection[Any],
) -> None:
    cancelled = []

    async def main() -> None:
        # drivers other than psycopg may close the connection of a cancelled statement, or still be busy with it
        with suppress(sa.exc.DBAPIError):
            async with opened_async() as mine:
                with connect(autocommit=False) as other:
                    other.execute("SELECT FROM pgsched.runs FOR UPDATE")
                    waits = asyncio.create_task(run.cancel_async(connection=mine))
                    # within a transaction, the sessions seem to stay what they were at the first look
                    await becomes(lambda: db.execute(BLOCKED).fetchone() == (1,), "the call waits for the lock")
                    waits.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waits
                    cancelled.append(waits.cancelled())
                if isinstance(mine, psycopg.AsyncConnection):
                    assert await execute_async(mine, "SELECT 1") == [(1,)]

    asyncio.run(main())
    assert cancelled == [True]
    assert run.state() is State.QUEUED


def test_a_call_that_is_cancelled_again_and_again_gives_the_connection_back_unused(
    run: RunHandle[Any],
    opened_async: AsyncOpened,
    connect: Callable[..., psycopg.Connection[Any]],
    db: psycopg.Connection[Any],
) -> None:
    """anyio (Starlette, FastAPI) cancels a task again at each turn of the loop, until it has ended."""

    async def main() -> None:
        # asyncpg closes the connection of a cancelled statement, and its transaction can only be rolled back
        with suppress(sa.exc.DBAPIError, sa.exc.PendingRollbackError):
            async with opened_async() as mine:
                await execute_async(mine, "SELECT 1")
                with connect(autocommit=False) as other:
                    other.execute("SELECT FROM pgsched.runs FOR UPDATE")
                    waits = asyncio.create_task(run.cancel_async(connection=mine))
                    await becomes(lambda: db.execute(BLOCKED).fetchone() == (1,), "the call waits for the lock")
                    while not waits.done():
                        waits.cancel()
                        await asyncio.sleep(0)
                    with pytest.raises(asyncio.CancelledError):
                        await waits
                    await becomes(lambda: db.execute(BLOCKED).fetchone() == (0,), "the statement has ended")
                if isinstance(mine, psycopg.AsyncConnection):
                    assert mine.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
                assert await execute_async(mine, "SELECT 1") == [(1,)]
                await mine.commit()

    asyncio.run(main())
    assert run.state() is State.QUEUED


@pytest.mark.parametrize("method", ["call_async", "send_async"])
def test_a_call_that_is_cancelled_between_two_statements_ends_and_is_undone(
    app: App, run: RunHandle[Any], opened_async: AsyncOpened, method: str
) -> None:
    began, go = threading.Event(), threading.Event()

    def change(conn: Any) -> None:
        with conn.transaction():
            conn.execute("UPDATE pgsched.runs SET priority = 1")
            began.set()
            assert go.wait(10)
            conn.execute("SELECT 1")

    async def main() -> None:
        async with opened_async() as mine:
            if method == "call_async":
                call = asyncio.create_task(app.database.call_async(mine, change))
            elif isinstance(mine, psycopg.AsyncConnection) or (await driver(mine)) != "asyncpg":
                return  # the coroutine function is called there, without a thread
            else:
                call = asyncio.create_task(app.database.send_async(mine, never, change))
            await asyncio.to_thread(began.wait, 10)
            call.cancel()
            await asyncio.sleep(0)
            go.set()
            await asyncio.wait({call}, timeout=5)
            assert call.cancelled()
            assert await execute_async(mine, "SELECT 1") == [(1,)]
            await mine.commit()

    asyncio.run(main())
    assert run.info().priority == 5


async def driver(mine: Any) -> str:
    return str((mine if hasattr(mine, "dialect") else await mine.connection()).dialect.driver)


async def never(conn: Any) -> None:
    raise AssertionError


def test_jobs_are_changed_in_the_caller_s_transaction(app: App, db: psycopg.Connection[Any], opened: Opened) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 3 * * *')")
    job = app.jobs["nightly"]
    with opened() as mine:
        job.update(priority=1, args={"a": 1}, connection=mine)
        assert job.info(connection=mine)["priority"] == 1 and job.info()["priority"] is None
        with pytest.raises(InputError, match="priority"):
            job.update(priority="x", connection=mine)
        mine.commit()
    assert job.info()["args"] == {"a": 1}


def test_jobs_are_changed_on_asyncio_connections(
    app: App, db: psycopg.Connection[Any], opened_async: AsyncOpened
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 3 * * *')")
    job = app.jobs["nightly"]

    async def main() -> None:
        async with opened_async() as mine:
            await job.pause_async("why", connection=mine)
            assert (await job.info_async(connection=mine))["paused"] and not job.info()["paused"]
            assert "paused" in (await job.explain_async(connection=mine)).text
            assert len(await job.preview_async(3, connection=mine)) == 3

    asyncio.run(main())


@pytest.mark.parametrize("given", [object(), "dsn", sa.create_engine("sqlite://").connect()])
def test_an_object_that_is_no_connection_is_refused(app: App, run: RunHandle[Any], given: Any) -> None:
    with pytest.raises(InputError, match="connection: "):
        run.state(connection=given)

    async def main(use: Callable[..., Awaitable[Any]]) -> None:
        with pytest.raises(InputError, match="connection: "):
            await use(connection=given)

    asyncio.run(main(run.state_async))


def test_the_other_form_is_named_for_a_connection_of_the_wrong_kind(app: App, run: RunHandle[Any], dsn: str) -> None:
    with psycopg.connect(dsn) as mine, pytest.raises(InputError, match="the form without _async takes others"):
        asyncio.run(run.state_async(connection=mine))
