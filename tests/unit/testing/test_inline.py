"""Inline mode: to enqueue is to call, and a run that ends dead fails the test."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from pgsched import App, Discard, Retry, Run, Snooze
from pgsched.testing import inline

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)


def test_inline_an_enqueue_runs_the_task_at_once(app: App, welcome: Any, seen: list[Any]) -> None:
    with inline(app) as ran:
        welcome.options(delay=3600).enqueue(7)
        assert seen == [(7, False)]
        assert (ran.runs[0].state, ran.runs[0].result) == ("succeeded", 14)


def test_inline_errors_are_raised_in_the_test(app: App) -> None:
    @app.task(name="broken")
    def broken() -> None:
        raise ZeroDivisionError("of course")

    with inline(app) as ran:
        with pytest.raises(ZeroDivisionError):
            broken.enqueue()
        assert (ran.runs[0].state, ran.runs[0].error) == ("dead", "ZeroDivisionError: of course")


@pytest.mark.parametrize("error", [Discard("no"), Retry(0, "no"), ExceptionGroup("", [Discard("no")])])
def test_inline_a_run_that_its_handler_gives_up_fails_the_test(error: Exception, app: App) -> None:
    @app.task(name="fails", max_attempts=1)
    def fails() -> None:
        raise error

    with inline(app) as ran:
        with pytest.raises(type(error)):
            fails.enqueue()
        assert ran.runs[0].state == "dead"


@pytest.mark.parametrize("error", [Discard("no"), ValueError("no"), SystemExit("no")])
def test_dead_runs_can_be_allowed(error: BaseException, app: App) -> None:
    @app.task(name="fails")
    def fails() -> None:
        raise error

    with inline(app, allow_dead=True) as ran:
        fails.enqueue()
        assert (ran.runs[0].state, ran.runs[0].error) == ("dead", f"{type(error).__name__}: no")


def test_an_interrupt_is_raised_although_dead_runs_are_allowed(app: App) -> None:
    @app.task(name="interrupted")
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), inline(app, allow_dead=True):
        interrupted.enqueue()


@pytest.mark.parametrize("looped", [True, False])
def test_inline_async_tasks_run_from_sync_and_async_code(looped: bool, app: App, seen: list[Any]) -> None:
    @app.task(name="slow")
    async def slow(n: int) -> None:
        await asyncio.sleep(0)
        seen.append(n)

    @app.task(name="plain")
    def plain(n: int) -> None:
        slow.enqueue(n)

    async def main() -> None:
        await slow.enqueue_async(1)
        slow.enqueue(2)
        await plain.enqueue_async(3)

    with inline(app):
        if looped:
            asyncio.run(main())
            assert seen == [1, 2, 3]
        else:
            plain.enqueue(4)
            assert seen == [4]


def test_a_handler_gets_its_run_and_its_signals_take_effect(app: App) -> None:
    @app.task(name="picky", max_attempts=3)
    def picky(run: Run, what: str) -> int:
        if what == "later":
            raise Snooze(60)
        if what == "again":
            raise Retry(60) if run.attempt < 2 else Discard("enough")
        return run.attempt

    with inline(app, now=NOON, allow_dead=True) as ran:
        for what in ("later", "again", "now"):
            picky.enqueue(what)
        assert [run.state for run in ran.runs] == ["scheduled", "scheduled", "succeeded"]
        assert [run.attempt for run in ran.runs] == [0, 1, 1]
        ran.travel(60)
        assert [run.state for run in ran.runs] == ["scheduled", "dead", "succeeded"]


def test_signals_in_an_exception_group_take_effect_as_in_a_worker(app: App) -> None:
    @app.task(name="grouped", max_attempts=3)
    async def grouped(what: str) -> None:
        signals: dict[str, list[Exception]] = {
            "later": [Snooze(60), Snooze(90)],
            "again": [Retry(60)],
            "never": [Discard("no")],
            "mixed": [Retry(60), ValueError("no")],
        }
        raise ExceptionGroup("of a TaskGroup", signals[what])

    with inline(app, now=NOON, allow_dead=True) as ran:
        for what in ("later", "again", "never"):
            grouped.enqueue(what)
        ran.allow_dead = False
        assert [(run.state, (run.at - NOON).total_seconds()) for run in ran.runs] == [
            ("scheduled", 90), ("scheduled", 60), ("dead", 0),
        ]  # fmt: skip
        with pytest.raises(ExceptionGroup, match="of a TaskGroup"):
            grouped.enqueue("mixed")


@pytest.mark.parametrize("is_async", [True, False])
def test_the_middleware_of_an_app_wraps_its_handlers(is_async: bool, app: App, welcome: Any, seen: list[Any]) -> None:
    def plain(run: Run, call_next: Any) -> Any:
        seen.append(f"{run.task} begins")
        return call_next()

    async def around(run: Run, call_next: Any) -> Any:
        seen.append(f"{run.task} begins")
        return await call_next()

    app.middleware(around if is_async else plain)
    with inline(app) as ran:
        welcome.enqueue(7)
    assert seen == ["welcome begins", (7, False)] and ran.runs[0].result == 14
