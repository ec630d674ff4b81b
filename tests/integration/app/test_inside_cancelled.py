"""A worker on a program's event loop drains when the program is cancelled, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import anyio
import psycopg
import pytest

from pgsched import App
from tests.support.hosting.inside import QUICK, add_waiting_task, alive, becomes, play, states
from tests.support.waiting import wait_until


@pytest.fixture
def begun(app: App) -> threading.Event:
    return add_waiting_task(app)


def test_a_cancelled_program_drains_and_a_second_cancellation_hurries(
    app: App, db: psycopg.Connection[Any], begun: threading.Event
) -> None:
    ended: list[str] = []

    async def program() -> None:
        try:
            async with app.worker(**QUICK | {"grace": 50.0}):
                await asyncio.Event().wait()
        finally:
            ended.append("program")

    async def scene() -> None:
        task = asyncio.create_task(program())
        await becomes(begun.is_set)
        task.cancel()
        await becomes(lambda: db.execute("SELECT 1 FROM pgsched.workers WHERE stopping_at IS NOT NULL").fetchone())
        assert not task.done(), "it waits for the handler"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["program"] and alive(db) == 0

    app.tasks["waits"].enqueue()
    play(scene)
    assert states(db) == {"waits": "queued"}


def test_a_cancel_scope_that_repeats_itself_hurries_the_drain(
    app: App, db: psycopg.Connection[Any], begun: threading.Event
) -> None:
    """As in Starlette: anyio cancels at each await inside of a cancelled scope."""

    async def scene() -> None:
        with anyio.CancelScope() as scope:
            async with app.worker(**QUICK | {"grace": 50.0}):
                await becomes(begun.is_set)
                scope.cancel()
                await asyncio.sleep(60)

    app.tasks["waits"].enqueue()
    play(scene)
    assert states(db) == {"waits": "queued"} and alive(db) == 0


def test_a_drain_that_is_left_leaves_nothing_on_the_program_s_loop(
    app: App, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pgsched.client import inside

    monkeypatch.setattr(inside, "LEAVE_S", 0.5)
    begun, go = asyncio.Event(), asyncio.Event()

    @app.task(name="stays", kill_after=60)
    async def stays() -> None:
        begun.set()
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()

    async def scene() -> None:
        before = asyncio.all_tasks()
        with anyio.CancelScope() as scope:
            async with app.worker(**QUICK | {"grace": 50.0}):
                await begun.wait()
                scope.cancel()
        left = asyncio.all_tasks() - before
        names = {task.get_coro().__qualname__ for task in left}  # type: ignore[union-attr]
        go.set()
        await asyncio.wait(left)
        assert not {name for name in names if "stays" not in name and "AttemptRunner" not in name}, names
        await asyncio.to_thread(wait_until, lambda: connections(db) == 0, 20, "the end of its connections")

    app.tasks["stays"].enqueue()
    app.close()
    play(scene)


def connections(db: psycopg.Connection[Any]) -> int:
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    row = db.execute(others + " AND application_name LIKE 'pgsched%'").fetchone()
    assert row is not None
    return int(row[0])


def test_a_cancellation_at_the_moment_of_the_start_drains(
    app: App, db: psycopg.Connection[Any], begun: threading.Event
) -> None:
    async def scene() -> None:
        before = asyncio.all_tasks()
        worker = app.worker(**QUICK)
        entering = asyncio.create_task(worker.__aenter__())
        while worker.name is None:  # noqa: ASYNC110 - the turn of the loop counts
            await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert worker.error is None and asyncio.all_tasks() - before == set()

    app.tasks["waits"].enqueue(0.1)
    play(scene)
    assert alive(db) == 0


def test_a_cancelled_start_leaves_no_worker(app: App, db: psycopg.Connection[Any]) -> None:
    started = threading.Event()

    @app.on_start
    async def slow() -> None:
        started.set()
        await asyncio.sleep(60)

    async def scene() -> None:
        task = asyncio.create_task(app.worker(**QUICK).__aenter__())
        await becomes(started.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(scene)
    assert alive(db) == 0
