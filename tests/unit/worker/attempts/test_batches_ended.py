"""The outcomes of runs whose batch call takes too long, is cancelled, or is stopped with the worker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from pgsched import App, Item
from pgsched.core.model import Result
from pgsched.execute.python import batches
from pgsched.worker.attempts import attempt
from pgsched.worker.attempts.attempt import EndReason
from tests.support.attempts.batches import Bench, run


def test_a_call_that_takes_too_long_times_out_and_frees_its_place() -> None:
    app = App("test")

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        items[0].done()
        await asyncio.Event().wait()

    async def test() -> None:
        bench = Bench(app, concurrency=1)
        bench.take(1, 2, timeout_s=0.05)
        await bench.all_settled(2)
        assert bench.settled[2].error == "timed out after 0.05 s"
        assert bench.settled[2].result is Result.TIMED_OUT
        await bench.until(lambda: bench.runner.room() == 1)

    run(test)


def test_a_call_that_cancels_itself_fails_the_items_without_an_outcome() -> None:
    app = App("test")

    @app.task(name="many", batch=3)
    async def many(items: list[Item]) -> None:
        items[0].done()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, 3)
        await bench.all_settled(3)
        assert [bench.settled[n].result for n in (1, 2, 3)] == [Result.SUCCEEDED, Result.FAILED, Result.FAILED]
        assert bench.settled[2].error == "CancelledError: the task cancelled itself"
        assert bench.runner.room() == 2

    run(test)


def test_runs_time_out_only_after_their_call_and_its_late_outcomes_count() -> None:
    app, go = App("test"), asyncio.Event()
    stopped = asyncio.Event()

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
            await go.wait()
            items[0].done("paid")

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, timeout_s=0.05)
        await stopped.wait()
        await asyncio.sleep(0.05)
        assert bench.settled == {}, "the next attempt would overlap this call"
        go.set()
        await bench.all_settled(2)
        assert bench.results() == {1: (Result.SUCCEEDED, "paid"), 2: (Result.TIMED_OUT, None)}
        assert bench.settled[2].error == "timed out after 0.05 s"

    run(test)


def test_runs_of_a_call_that_does_not_end_time_out_after_kill_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MARGIN_S", 0.05)
    app, free = App("test"), asyncio.Event()
    cancelled_at: list[float] = []

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await free.wait()
        cancelled_at.append(time.monotonic())
        await free.wait()

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, timeout_s=0.05, kill_after_s=0.1)
        await bench.all_settled(2)
        assert time.monotonic() - cancelled_at[0] >= 0.1, "not before kill_after"
        assert {outcome.result for outcome in bench.settled.values()} == {Result.TIMED_OUT}
        assert bench.executor.abandoned == 1
        free.set()
        await bench.until(lambda: bench.executor.abandoned == 0)

    run(test)


def test_a_cancelled_run_leaves_its_call_which_goes_on_for_the_others() -> None:
    app, go = App("test"), asyncio.Event()
    ended: list[str] = []

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        try:
            await go.wait()
            ended.append("returned")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def test() -> None:
        bench = Bench(app)
        one, other = bench.take(1, 2)
        await bench.until(lambda: len(bench.runner) == 2 and bench.runner.room() == 1)
        bench.runner.end([one.key], EndReason.CANCEL)
        await bench.all_settled(1)
        go.set()
        await bench.all_settled(2)
        assert [outcome.result for outcome in bench.settled.values()] == [Result.CANCELLED, Result.SUCCEEDED]
        go.clear()
        both = bench.take(3, 4)
        await bench.until(lambda: len(bench.runner) == 2 and bench.runner.room() == 1)
        bench.runner.end([claim.key for claim in both], EndReason.CANCEL)
        await bench.until(lambda: bench.runner.room() == 2)
        assert ended == ["returned", "cancelled"]
        assert other.id in bench.settled

    run(test)


@pytest.mark.parametrize("in_thread", [True, False])
def test_at_a_stop_runs_end_only_after_their_call_and_late_outcomes_count(
    in_thread: bool,
) -> None:
    app, called, stopped, go = App("test"), threading.Event(), threading.Event(), threading.Event()

    def plain(items: list[Item]) -> None:
        called.set()
        items[0].run.cancelled.wait(10)
        stopped.set()
        go.wait(10)
        items[0].done("paid")
        items[1].fail(ValueError("no"))

    async def on_loop(items: list[Item]) -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
            await asyncio.sleep(0.05)
            await asyncio.to_thread(plain, items)

    app.task(name="many", batch=3)(plain if in_thread else on_loop)

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, 3)
        await bench.until(called.is_set)
        bench.runner.stop()
        bench.runner.end_all(EndReason.SHUTDOWN)
        await bench.until(stopped.is_set)
        await asyncio.sleep(0.1)
        assert bench.settled == {}, "another worker would run them beside this call"
        go.set()
        await bench.runner.idle(lambda: False)
        assert [bench.settled[n].result for n in (1, 2, 3)] == [
            Result.SUCCEEDED, Result.FAILED, Result.INTERRUPTED
        ]  # fmt: skip
        assert bench.settled[1].value == "paid"
        assert bench.settled[3].error == EndReason.SHUTDOWN.value

    run(test)


def test_the_results_that_a_stopped_call_returns_count() -> None:
    app, called = App("test"), asyncio.Event()

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> list[Any]:
        called.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return ["done all the same", ValueError("no")]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        await called.wait()
        bench.runner.stop()
        bench.runner.end_all(EndReason.SHUTDOWN)
        await bench.runner.idle(lambda: False)
        assert bench.results() == {1: (Result.SUCCEEDED, "done all the same"), 2: (Result.FAILED, None)}

    run(test)


def test_at_a_stop_runs_of_an_endless_call_end_after_kill_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "ABANDON_MARGIN_S", 0.05)
    monkeypatch.setattr(batches, "MARGIN_S", 0.1)
    app, called, free = App("test"), asyncio.Event(), asyncio.Event()

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        called.set()
        with contextlib.suppress(asyncio.CancelledError):
            await free.wait()
        await free.wait()

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, kill_after_s=0.1)
        await called.wait()
        bench.runner.stop()
        bench.runner.end_all(EndReason.SHUTDOWN)
        await asyncio.sleep(0.05)
        assert bench.settled == {}
        await bench.all_settled(2)
        assert {outcome.result for outcome in bench.settled.values()} == {Result.INTERRUPTED}
        assert len(bench.runner) == 0
        await bench.until(lambda: bench.executor.abandoned == 1)
        free.set()
        await bench.until(lambda: bench.executor.abandoned == 0)

    run(test)


def test_the_last_cancelled_run_of_a_call_ends_only_with_the_call() -> None:
    app, called, go = App("test"), asyncio.Event(), asyncio.Event()

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            await go.wait()

    async def test() -> None:
        bench = Bench(app)
        one, other = bench.take(1, 2)
        await called.wait()
        bench.runner.beaten([], frozenset({one.key}))
        await bench.all_settled(1)
        bench.runner.beaten([], frozenset({other.key}))
        await asyncio.sleep(0.05)
        assert list(bench.settled) == [one.id]
        go.set()
        await bench.all_settled(2)
        assert {outcome.result for outcome in bench.settled.values()} == {Result.CANCELLED}

    run(test)


def test_a_run_that_is_cancelled_while_its_batch_gathers_is_not_called() -> None:
    app, calls = App("test"), []

    @app.task(name="many", batch=3, batch_wait=0.2)
    async def many(items: list[Item]) -> None:
        calls.append([item["n"] for item in items])

    async def test() -> None:
        bench = Bench(app)
        one, _ = bench.take(1, 2)
        await bench.until(lambda: len(bench.runner) == 2)
        bench.runner.end([one.key], EndReason.CANCEL)
        await bench.all_settled(2)
        assert calls == [[2]]

    run(test)
