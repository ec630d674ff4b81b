"""A worker inside a program, and a mounted console, under a recorder: the program starts, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pgsched import App, InputError, PgschedError
from pgsched.contrib.starlette import lifespan, mount_console
from pgsched.testing import DatabaseClock, assert_enqueued, inline, record

MODES = pytest.mark.parametrize("mode", [record, inline], ids=["record", "inline"])


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def app(events: list[str]) -> App:
    app = App("shop", dsn="host=127.0.0.1 port=1 connect_timeout=1")
    app.on_start(lambda: events.append("on_start"))
    return app


@pytest.fixture
def welcome(app: App, events: list[str]) -> Any:
    @app.task(name="welcome")
    def welcome(user: int) -> None:
        events.append(f"welcome {user}")

    return welcome


@pytest.fixture
def web(app: App, welcome: Any, events: list[str]) -> Starlette:
    async def sign_up(request: Request) -> JSONResponse:
        run = await welcome.enqueue_async(7)
        return JSONResponse({"run": run, "state": await run.state_async()})

    @asynccontextmanager
    async def own(_: Starlette) -> AsyncIterator[None]:
        events.append("opened")
        yield
        events.append("closed")

    web = Starlette(routes=[Route("/", sign_up)], lifespan=lifespan(app, own, concurrency=4))
    mount_console(web, "/jobs", token="0123456789abcdefghijklmnopqrstuvwxyz", database=app)
    return web


@MODES
def test_an_application_with_a_worker_in_its_lifespan_starts(
    mode: Any, app: App, welcome: Any, web: Starlette, events: list[str]
) -> None:
    with mode(app) as recorder:
        for _ in range(2):
            with TestClient(web) as client:
                worker = web.state.pgsched_worker
                assert worker.is_running and worker.name is None
                state = client.get("/").json()["state"]
            assert not worker.is_running and worker.error is None
        if mode is record:
            assert state == "queued" and assert_enqueued(welcome, args={"user": 7})
            recorder.drain()
    assert [event for event in events if event.startswith("welcome")] == ["welcome 7"] * 2
    assert events[0] == "opened" and "closed" in events and "on_start" not in events


def test_a_page_of_the_console_says_that_it_needs_a_database(app: App, web: Starlette) -> None:
    with record(app), TestClient(web) as client, pytest.raises(InputError, match=r"the console .* need a database"):
        client.get("/jobs/")


@MODES
def test_a_worker_in_a_block_or_a_thread_starts_nothing_and_ends(mode: Any, app: App, events: list[str]) -> None:
    made_before = app.worker()
    with mode(app):
        for worker in (made_before, app.worker(concurrency=2, leader=False)):
            with worker:
                assert worker.is_running
            assert not worker.is_running
            with pytest.raises(PgschedError, match="started before"):
                worker.start()
        started = app.worker().start()
        started.stop()
        started.close()
        assert not started.is_running and started.error is None
        with pytest.raises(InputError, match="concurrency"):
            app.worker(concurrency=0)
    assert events == []


def test_a_worker_on_an_event_loop_ends_at_a_stop_and_at_a_cancellation(app: App) -> None:
    async def main() -> None:
        async with app.worker() as worker:
            worker.stop()
        assert not worker.is_running
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), app.worker() as worker:
                await asyncio.sleep(60)
        assert not worker.is_running and worker.error is None

    with record(app):
        asyncio.run(main())


def test_a_clock_of_a_database_is_refused_in_its_own_words(app: App) -> None:
    with record(app), pytest.raises(InputError, match=r"DatabaseClock need a database.*recorder\.travel"):
        DatabaseClock(app).now()
