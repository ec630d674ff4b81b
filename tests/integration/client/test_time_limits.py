"""Results within a time limit: a run that is revived meanwhile is awaited again, for the time that is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, State
from tests.support.working import at_work


@pytest.fixture
def app(dsn: str, db: psycopg.Connection[Any]) -> Iterator[App]:
    app = App("shop", dsn=dsn)

    @app.task(name="pay")
    def pay() -> Decimal:
        return Decimal(7)

    yield app
    app.close()


@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_run_that_is_revived_before_its_result_is_read_is_awaited_again(
    app: App, dsn: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    run = app.enqueue("pay")
    run.cancel()
    waiter, wait, wait_async = app.waiter, app.waiter.wait, app.waiter.wait_async
    ended = []

    def note(states: Any) -> Any:
        ended.append(states)
        if len(ended) == 1:
            run.retry()
        return states

    async def noted(*args: Any) -> Any:
        return note(await wait_async(*args))

    monkeypatch.setattr(waiter, "wait", lambda *args: note(wait(*args)))
    monkeypatch.setattr(waiter, "wait_async", noted)
    with at_work(dsn, app):
        found = run.result(timeout=20) if form == "sync" else asyncio.run(run.result_async(timeout=20))
    assert found == Decimal(7)
    assert ended[0] == {run: "cancelled"}
    assert ended[1:] in ([], [{run: "succeeded"}]), "not awaited where it succeeds before it is looked at again"


def test_a_run_that_is_revived_and_goes_on_is_awaited_no_longer_than_asked(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = app.enqueue("pay")
    run.cancel()
    wait = app.waiter.wait

    def revive(*args: Any) -> Any:
        states = wait(*args)
        if states:
            run.retry()
        return states

    monkeypatch.setattr(app.waiter, "wait", revive)
    with pytest.raises(TimeoutError, match="it is queued"):
        run.result(timeout=0.3)


def test_a_time_limit_is_seconds_or_a_timedelta(app: App) -> None:
    run, ended = app.enqueue("pay"), app.enqueue("pay")
    ended.cancel()
    short = timedelta(milliseconds=100)
    for wait in (
        run.wait, run.result, lambda limit: asyncio.run(run.wait_async(limit)),
        lambda limit: asyncio.run(run.result_async(limit)), lambda limit: app.wait([run], limit),
        lambda limit: asyncio.run(app.wait_async([run], limit)),
    ):  # fmt: skip
        for limit in (short, -1, timedelta(days=-1)):
            with pytest.raises(TimeoutError):
                wait(limit)
        for wrong in ("30", True, float("nan")):
            with pytest.raises(InputError, match="timeout: expected seconds, a timedelta or None"):
                wait(wrong)
    for long in (float("inf"), timedelta.max, 10**30, None):
        assert ended.wait(timeout=long) is State.CANCELLED
        assert asyncio.run(ended.wait_async(timeout=long)) is State.CANCELLED
        assert app.wait([ended], timeout=long) == {ended: State.CANCELLED}
