"""Handles of recorded runs: a test reads, cancels and retries runs, and reads results, without a database."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from pgsched import (
    AlreadyEnqueued,
    App,
    Discard,
    InputError,
    NotFound,
    PgschedError,
    Retry,
    Run,
    RunFailed,
    Snooze,
    State,
)  # fmt: skip
from pgsched.testing import inline, record


def test_an_inline_run_has_its_result_at_once(app: App) -> None:
    @app.task(name="price")
    def price(items: int) -> Decimal:
        return items * Decimal("9.90")

    with inline(app):
        run = price.enqueue(3)
        assert (run.state(), run.result(), run.wait()) == (State.SUCCEEDED, Decimal("29.70"), State.SUCCEEDED)
        assert asyncio.run(run.result_async()) == Decimal("29.70")
        assert app.wait([run]) == {run: State.SUCCEEDED}


def test_a_failed_inline_run_raises_its_error(app: App) -> None:
    @app.task(name="fail", max_attempts=1)
    def fail() -> None:
        raise ValueError("no money")

    with inline(app, allow_dead=True):
        run = fail.enqueue()
        with pytest.raises(RunFailed, match="is dead: ValueError: no money"):
            run.result()


def test_a_retried_inline_run_is_left_for_drain(app: App) -> None:
    @app.task(name="fails_once")
    def fails_once(run: Run) -> int:
        if run.attempt == 1:
            raise Discard("no")
        return run.attempt

    with inline(app, allow_dead=True) as recorder:
        run = fails_once.enqueue()
        assert run.retry() is State.QUEUED
        with pytest.raises(TimeoutError, match=r"it is queued, and the test has not run it: call drain\(\)$"):
            run.result()
        recorder.drain()
        assert run.result() == 2


def test_a_recorded_run_is_read_changed_cancelled_and_retried(app: App) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    with record(app) as recorder:
        run = t.options(tags=["a"]).enqueue(7)
        at = datetime.now(UTC) + timedelta(hours=1)
        assert run.update(priority=1, at=at, queue="slow") is State.SCHEDULED
        info = asyncio.run(run.info_async())
        assert (info.args, info.tags, info.priority, info.available_at, info.queue) == ({"n": 7}, ["a"], 1, at, "slow")
        assert recorder.runs[0].queue == "slow" and run.logs() == []
        with pytest.raises(TimeoutError, match=r"it is scheduled, and due at .* only: call travel\(\), or drain"):
            run.wait(timeout=60)
        assert run.update(at=datetime.now(UTC) - timedelta(hours=1)) is State.QUEUED
        with pytest.raises(TimeoutError, match=r"it is queued, and the test has not run it: call drain\(\)"):
            run.wait(timeout=60)
        assert run.cancel() is State.CANCELLED
        with pytest.raises(InputError, match=r"has ended \(cancelled\)"):
            run.update(priority=2)
        assert run.retry() is State.QUEUED
        recorder.drain()
        assert run.result() is None
        with pytest.raises(InputError, match="only dead, cancelled"):
            run.retry()
        with pytest.raises(NotFound):
            app.run(99).state()


def test_what_needs_a_database_says_so(app: App) -> None:
    uses: list[Any] = [app.runs, app.jobs["nightly"].info, app.jobs["nightly"].trigger]
    with record(app):
        for use in uses:
            with pytest.raises(InputError, match="need a database, and this test has a recorder in its place"):
                use()


def test_an_inline_handler_may_not_wait_for_runs(app: App) -> None:
    inner = app.task(name="inner")(lambda: 1)

    @app.task
    def outer() -> int:
        return int(inner.enqueue().result())

    @app.task
    async def outer_async() -> int:
        return int(await inner.enqueue().result_async())

    for task in (outer, outer_async):
        with inline(app), pytest.raises(PgschedError, match="a handler cannot wait"):
            task.enqueue()
    with inline(app):
        assert inner.enqueue().result() == 1


def test_a_parent_that_fails_ends_its_children_at_once_and_a_retry_waits_or_starts(app: App) -> None:
    @app.task(name="t")
    def t(n: int) -> None:
        if n == 0:
            raise Discard("no")

    with record(app) as recorder:
        parent = t.enqueue(0)
        child, other = (t.options(after=[parent]).enqueue(n) for n in (1, 2))
        assert child.state() is State.WAITING
        with pytest.raises(TimeoutError, match="it is waiting, and a run that it waits for has not ended"):
            child.wait()
        recorder.drain()
        with pytest.raises(RunFailed, match=r"is cancelled: dependency: run 1 \(t\) is dead"):
            child.result()
        assert (child.retry(), other.retry(now=True)) == (State.WAITING, State.QUEUED)
        assert [run.id for run in recorder.drain()] == [other]
        assert child.state() is State.WAITING, "for a parent that is retried and succeeds"


def test_a_reason_is_kept(app: App) -> None:
    t = app.task(name="t")(lambda: None)
    with record(app) as recorder:
        run = t.enqueue()
        assert run.cancel("out of stock") is State.CANCELLED
        with pytest.raises(RunFailed, match="is cancelled: cancelled by the test: out of stock"):
            run.result()
        late = t.options(expires=60).enqueue()
        recorder.travel(60)
        assert (late.state(), late.info().reason) == (State.MISSED, f"expired: not started by {recorder.clock.now()}")
        assert recorder.runs[1].reason == late.info().reason


@pytest.mark.parametrize("ends_well", [True, False], ids=["succeeds", "fails"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_running_run_is_asked_to_stop(ends_well: bool, is_async: bool, app: App) -> None:
    @app.task(name="t")
    def t(run: Run) -> bool:
        assert app.run(run.id).cancel("enough") is State.RUNNING
        if not ends_well:
            raise Retry(60)
        return run.cancelled.is_set()

    with inline(app):
        run = asyncio.run(t.enqueue_async()) if is_async else t.enqueue()
        if ends_well:
            assert run.result() is True
        else:
            assert (run.state(), run.info().reason) == (State.CANCELLED, "cancelled by the test: enough")


def test_many_runs_are_made_before_the_first_one_runs_or_none_is(app: App) -> None:
    seen: list[int] = []

    @app.task(name="t")
    def t(n: int) -> None:
        seen.append(len(app.database.runs))  # type: ignore[attr-defined]
        if n < 0:
            raise ValueError("no")

    with inline(app) as recorder:
        t.enqueue_many([[1], [2]])
        assert seen == [2, 2]
        with pytest.raises(ValueError, match="no"):
            t.enqueue_many([[-3], [4]])
        assert [run.state for run in recorder.runs] == ["succeeded", "succeeded", "dead", "queued"]
    with record(app) as recorder:
        once = t.options(unique_by=True, on_conflict="reject")
        once.enqueue(1)
        with pytest.raises(AlreadyEnqueued):
            once.enqueue_many([[2], [1]])
        with pytest.raises(AlreadyEnqueued):
            asyncio.run(once.enqueue_many_async([[2], [1]], return_ids=True))
        assert [run.args for run in recorder.runs] == [{"n": 1}]
        assert once.enqueue(2).created, "the key of a run that was not made is free"


def test_inline_a_run_that_waits_runs_after_its_parent(app: App) -> None:
    seen: list[int] = []

    @app.task(name="t")
    def t(run: Run, n: int) -> None:
        if run.attempt == 1 and n == 1 and not seen:
            seen.append(0)
            raise Snooze(60)
        seen.append(n)

    with inline(app) as recorder:
        parent = t.enqueue(1)
        child = t.options(after=[parent]).enqueue(2)
        assert (parent.state(), child.state(), seen) == (State.SCHEDULED, State.WAITING, [0])
        recorder.travel(60)
        assert (parent.state(), child.state(), seen) == (State.SUCCEEDED, State.SUCCEEDED, [0, 1, 2])
