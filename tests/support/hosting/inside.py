"""A program with a worker inside, for tests of `app.worker()`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from pgsched import App
from tests.support.waiting import wait_until

QUICK: dict[str, Any] = {"concurrency": 2, "poll": 0.1, "lease": 3.0, "grace": 10.0}
ALIVE = "SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NULL"


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await scene()

    asyncio.run(within())


def states(db: psycopg.Connection[Any]) -> dict[str, str]:
    return dict(db.execute("SELECT task, state::text FROM pgsched.runs").fetchall())


async def becomes(condition: Callable[[], Any], what: str = "the condition") -> None:
    await asyncio.to_thread(wait_until, condition, 20, what)


def alive(db: psycopg.Connection[Any]) -> int:
    row = db.execute(ALIVE).fetchone()
    assert row is not None
    return int(row[0])


def add_waiting_task(app: App) -> threading.Event:
    """Register a task that sleeps, and return what it sets when it begins."""
    begun = threading.Event()

    @app.task(name="waits")
    async def waits(seconds: float = 60) -> str:
        begun.set()
        await asyncio.sleep(seconds)
        return "done"

    return begun
