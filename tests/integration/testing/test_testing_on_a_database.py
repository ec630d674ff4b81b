"""The test kit on a database: draining, assertions, and a clock that can travel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched import App, Run
from pgsched.testing import DatabaseClock, assert_enqueued, drain, drain_async, refute_enqueued

pytestmark = [pytest.mark.packages, pytest.mark.scram]

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    app = App("shop", dsn=dsn)
    yield app
    app.close()


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def welcome(app: App, seen: list[Any]) -> Any:
    @app.task(name="welcome", queue="mail", max_attempts=2)
    def welcome(user: int) -> None:
        seen.append(user)
        if user < 0:
            raise ValueError("nobody")

    return welcome


def test_enqueued_runs_can_be_asserted(app: App, welcome: Any, connect: Connect) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    mine = connect(autocommit=False)
    welcome.options(connection=mine, at=at, tags=["new"]).enqueue(7)
    refute_enqueued(welcome)
    run = assert_enqueued(welcome, args={"user": 7}, queue="mail", at=at, tags=["new"], connection=mine)
    assert run.state == "scheduled"
    mine.rollback()
    welcome.enqueue(8)
    with pytest.raises(AssertionError, match=r"no run of welcome with args=\{'user': 7\} is enqueued; enqueued are:"):
        assert_enqueued(welcome, args={"user": 7})


def test_drain_runs_a_queue_with_a_real_worker(app: App, welcome: Any, seen: list[Any]) -> None:
    @app.task(name="sign_up")
    async def sign_up(user: int) -> None:
        await welcome.enqueue_async(user)

    sign_up.enqueue(1)
    assert drain(app, "default") == {"succeeded": 1}
    assert_enqueued(welcome, args={"user": 1})
    sign_up.enqueue(2)
    assert drain(app) == {"succeeded": 3}
    assert seen == [1, 2]
    refute_enqueued(welcome)
    assert drain(app) == {}


def test_drain_calls_the_start_and_shutdown_hooks_of_the_app(app: App, welcome: Any, seen: list[Any]) -> None:
    app.on_start(lambda: seen.append("start"))
    app.on_shutdown(lambda: seen.append("end"))
    welcome.enqueue(1)
    assert drain(app) == {"succeeded": 1}
    assert seen == ["start", 1, "end"]


def test_drain_neither_makes_nor_removes_declared_jobs(app: App, welcome: Any, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, declared_by) VALUES ('theirs', 't', '@daily', 'shop')")
    app.job(schedule="@daily", name="mine", args={"user": 1})(welcome)
    drain(app)
    assert db.execute("SELECT name FROM pgsched.jobs").fetchall() == [("theirs",)]
    said = db.execute("SELECT app, declares, stopped_at IS NOT NULL FROM pgsched.workers").fetchall()
    assert said == [("shop", None, True)], "and does not say what it declares"


def test_drain_with_scheduled_runs_makes_their_last_attempts(app: App, welcome: Any, seen: list[Any]) -> None:
    welcome.enqueue(-1)
    assert drain(app) == {}
    assert seen == [-1]
    welcome.options(delay=3600).enqueue(5)
    assert drain(app, scheduled=True) == {"dead": 1, "succeeded": 1}
    assert sorted(seen) == [-1, -1, 5]


def test_drain_in_async_code_ends_at_its_time_limit(app: App, seen: list[Any]) -> None:
    @app.task(name="endless")
    async def endless() -> None:
        seen.append("started")
        await asyncio.sleep(600)

    async def main() -> None:
        await endless.enqueue_async()
        try:
            with pytest.raises(TimeoutError, match=r"not drained after 0\.5 s: run 1 of endless is "):
                await drain_async(app, timeout=0.5)
        finally:
            await app.close_async()

    asyncio.run(main())


def test_the_first_result_is_what_the_handler_returned(app: App) -> None:
    @app.task(name="double")
    def double(n: int) -> dict[str, int]:
        return {"n": 2 * n}

    once = double.options(idempotency_key="request 7")
    first = once.enqueue(21)
    assert drain(app) == {"succeeded": 1}
    assert once.enqueue(21) == first and drain(app) == {}
    found = app.first_result("request 7")
    assert found is not None and (found.run_id, found.state, found.result) == (first, "succeeded", {"n": 42})
    assert found.finished_at is not None


def test_travelling_makes_delayed_runs_due_and_keys_expire(app: App, welcome: Any, seen: list[Any]) -> None:
    clock = DatabaseClock(app)
    welcome.options(delay=timedelta(hours=2), idempotency_key="k", idempotency_retention=3600).enqueue(1)
    before = clock.now()
    clock.travel(timedelta(minutes=90))
    assert clock.now() - before >= timedelta(minutes=90)
    assert drain(app) == {} and app.first_result("k") is None
    clock.travel(to=before + timedelta(hours=2, minutes=1))
    assert drain(app) == {"succeeded": 1}


def test_travelling_releases_runs_that_wait_for_others_when_due(app: App, welcome: Any, seen: list[Any]) -> None:
    clock = DatabaseClock(app)
    first = welcome.options(delay=3600).enqueue(1)
    second = welcome.options(after=[first]).enqueue(2)
    welcome.options(after=[second], delay=7200).enqueue(3)
    clock.travel(3600)
    assert drain(app) == {"succeeded": 2}
    clock.travel(3600)
    assert drain(app) == {"succeeded": 1}
    assert seen == [1, 2, 3]


def test_drain_does_not_wait_for_runs_that_depend_on_a_later_run(app: App, welcome: Any, seen: list[Any]) -> None:
    welcome.options(after=[welcome.enqueue(0)]).enqueue(1)
    later = welcome.options(delay=3600).enqueue(2)
    welcome.options(after=[later]).enqueue(3)
    assert drain(app) == {"succeeded": 2}
    assert drain(app, scheduled=True) == {"succeeded": 2}
    assert seen == [0, 1, 2, 3]


def test_each_slot_that_the_clock_passes_has_one_run(app: App, db: psycopg.Connection[Any], seen: list[Any]) -> None:
    @app.task(name="report")
    def report(run: Run, days: int) -> None:
        assert run.interval is not None and run.interval.start == run.interval.end - timedelta(days=1)
        seen.append(run.scheduled_at)

    db.execute(
        "INSERT INTO pgsched.jobs (name, schedule, task, args)"
        " VALUES ('nightly', '0 2 * * *', 'report', '{\"days\": 1}')"
    )
    clock = DatabaseClock(app)
    start = clock.now()
    for _ in range(4):
        clock.travel(timedelta(hours=18))
    slots = [row[0] for row in db.execute("SELECT scheduled_at FROM pgsched.runs ORDER BY 1")]
    assert len(slots) == 3
    assert all((slot.hour, slot.minute) == (2, 0) and start < slot < clock.now() for slot in slots)
    assert drain(app) == {"succeeded": 3}
    assert sorted(seen) == slots
