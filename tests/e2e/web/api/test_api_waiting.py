"""`GET /api/v1/runs/{id}?wait=30` answers when the run has ended, and costs little while it waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.web import app as web_app
from pgsched.web.api import waiting
from pgsched.web.settings import Settings
from tests.support.waiting import wait_until
from tests.support.web.asgi import Request
from tests.support.web.console import Browser, one


@pytest.fixture
def run_id(db: psycopg.Connection) -> Any:
    return one(db, "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id")


def cancel(db: psycopg.Connection, run_id: int) -> None:
    db.execute("SELECT pgsched.cancel(%s, 'enough')", [run_id])


async def until(count: int, app: Any) -> None:
    """Wait until so many requests wait for runs."""
    await asyncio.to_thread(wait_until, lambda: app.app.state.waiting.count == count, 30, f"{count} requests")


def with_console(dsn: str, body: Callable[[Any], Any]) -> None:
    """Run a coroutine function with a console in one event loop."""

    async def run() -> None:
        app: Any = web_app.make_console(Settings(dsn))
        try:
            await body(app)
        finally:
            app.app.state.waiting.close()
            app.app.state.pool.close()

    asyncio.run(run())


def test_a_run_that_has_ended_is_answered_at_once(browser: Browser, db: psycopg.Connection, run_id: int) -> None:
    cancel(db, run_id)
    begun = time.monotonic()
    assert browser.get(f"/api/v1/runs/{run_id}?wait=60").json()["state"] == "cancelled"
    assert browser.get("/api/v1/runs/999999?wait=60").status_code == 404
    assert time.monotonic() - begun < 20


def test_a_run_that_goes_on_is_answered_when_the_time_is_over(browser: Browser, run_id: int) -> None:
    begun = time.monotonic()
    assert browser.get(f"/api/v1/runs/{run_id}?wait=1").json()["state"] == "queued"
    assert 1 <= time.monotonic() - begun < 20


@pytest.mark.parametrize("wait", ["61", "-1", "x", "1.5", ""])
def test_a_wrong_time_is_refused(browser: Browser, run_id: int, wait: str) -> None:
    answer = browser.get(f"/api/v1/runs/{run_id}?wait={wait}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "wait")


def test_many_requests_wait_with_one_connection_and_no_thread_each(
    dsn: str, db: psycopg.Connection, run_id: int
) -> None:
    async def body(app: Any) -> None:
        threads = threading.active_count()
        waiters = [Request(app, f"/api/v1/runs/{run_id}?wait=60") for _ in range(150)]
        await until(150, app)
        status, found = await Request(app, "/api/v1/pauses").answer  # the pool has places for others
        assert (status, found) == (200, {"pauses": []})
        assert threading.active_count() - threads < 10
        sessions = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert one(db, sessions) <= 4
        cancel(db, run_id)
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*(one.answer for one in waiters))
        assert {(status, run["state"]) for status, run in answers} == {(200, "cancelled")}
        await until(0, app)

    with_console(dsn, body)


def test_a_client_that_goes_away_frees_its_place(dsn: str, run_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_WAITING", 2)

    async def body(app: Any) -> None:
        first, second = (Request(app, f"/api/v1/runs/{run_id}?wait=60") for _ in range(2))
        await until(2, app)
        status, refusal = await Request(app, f"/api/v1/runs/{run_id}?wait=60").answer
        assert (status, refusal["error"]["code"]) == (503, "too_many_waiting")
        assert (await Request(app, f"/api/v1/runs/{run_id}").answer)[0] == 200
        first.leave.set()
        await until(1, app)
        await first.answer
        third = Request(app, f"/api/v1/runs/{run_id}?wait=60")
        await until(2, app)
        for request in (second, third):
            request.leave.set()
            await request.answer

    with_console(dsn, body)


def test_the_end_of_the_server_ends_all_waiting(dsn: str, run_id: int) -> None:
    async def body(app: Any) -> None:
        waiters = [Request(app, f"/api/v1/runs/{run_id}?wait=60") for _ in range(3)]
        await until(3, app)
        app.app.state.ending.set()
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*(one.answer for one in waiters))
        assert {(status, run["state"]) for status, run in answers} == {(200, "queued")}

    with_console(dsn, body)


def test_a_database_that_cannot_be_asked_is_an_error_and_no_early_answer() -> None:
    async def body(app: Any) -> None:
        status, refusal = await Request(app, "/api/v1/runs/1?wait=1").answer
        assert (status, refusal["error"]["code"]) == (503, "database_unreachable")

    with_console("host=127.0.0.1 port=1 dbname=none", body)
