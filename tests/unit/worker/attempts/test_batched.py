"""Batched handlers: attempts gather for one call, and each is settled by itself."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from pgsched import App, Item, Retry, Run, Snooze, TaskError
from pgsched.core.model import Claim, Outcome, Result
from pgsched.execute.python import batches
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker.attempts import attempt, capacity
from pgsched.worker.attempts.attempt import Ended
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.leases import Leases


class Bench:
    """A runner with an executor, and what it settles."""

    def __init__(self, app: App, concurrency: int = 2) -> None:
        self.settled: dict[int, Outcome] = {}
        self.executor = PythonExecutor(app.tasks, concurrency, hooks=app.hooks)
        self.bugs: list[BaseException] = []
        self.runner = AttemptRunner(
            {"task": self.executor}, concurrency, Leases(60.0), self._settle, lambda: None, self.bugs.append
        )

    def _settle(self, claims: Sequence[Claim], outcome: Outcome) -> None:
        for claim in claims:
            assert claim.id not in self.settled
            self.settled[claim.id] = outcome

    def take(
        self, *numbers: int, task: str = "many", timeout_s: float | None = None, kill_after_s: float = 10
    ) -> list[Claim]:
        more = {
            "timeout": None if timeout_s is None else timedelta(seconds=timeout_s),
            "kill_after": timedelta(seconds=kill_after_s),
        }
        claims = [Claim(n, uuid4(), 1, 3, "default", 5, "task", task, {"n": n}, **more) for n in numbers]
        self.runner.take(claims, time.monotonic())
        return claims

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert self.bugs == []

    async def all_settled(self, count: int) -> None:
        await self.until(lambda: len(self.settled) == count)

    def results(self) -> dict[int, tuple[Result, Any]]:
        return {n: (outcome.result, outcome.value) for n, outcome in sorted(self.settled.items())}


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def test_a_call_gets_as_many_as_gather_and_more_than_there_are_places() -> None:
    app, calls = App(), []

    @app.task(name="many", batch=5, batch_wait=0.05)
    async def many(items: list[Item]) -> list[int]:
        calls.append(sorted(item["n"] for item in items))
        return [item["n"] * 10 for item in items]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        bench.take(3, 4, 5, 6)
        await bench.all_settled(6)
        assert calls == [[1, 2, 3, 4, 5], [6]]
        assert bench.results() == {n: (Result.SUCCEEDED, n * 10) for n in range(1, 7)}
        assert bench.runner.room() == 2

    run(test)


@pytest.mark.parametrize("whole", [True, False])
def test_an_on_error_hook_hears_of_each_item_that_failed(whole: bool) -> None:
    app, heard = App(), []

    @app.on_error
    def note(run: Run, error: BaseException) -> None:
        heard.append((run.id, type(error)))

    @app.task(name="many", batch=5, batch_wait=0.05)
    def many(items: list[Item]) -> list[Any]:
        next(item for item in items if item["n"] == 1).fail(KeyError("k"))
        next(item for item in items if item["n"] == 2).done()
        if whole:
            raise OSError("all others")
        return [Snooze(5) if item["n"] == 3 else ValueError("v") for item in items]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, 3, 4, 5)
        await bench.all_settled(5)
        others = {3: OSError, 4: OSError, 5: OSError} if whole else {4: ValueError, 5: ValueError}
        assert dict(heard) == {1: KeyError, **others}
        assert len(heard) == len(others) + 1

    run(test)


def test_each_item_is_settled_by_itself_and_at_once() -> None:
    app = App()
    go = asyncio.Event()

    @app.task(name="many", batch=4)
    async def many(items: list[Item]) -> list[Any]:
        by_number = {item["n"]: item for item in items}
        by_number[1].done("first")
        by_number[2].fail(Retry(60, "later"))
        await go.wait()
        return [ValueError("odd") if item["n"] == 3 else "rest" for item in items]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, 3, 4)
        await bench.all_settled(2)
        go.set()
        await bench.all_settled(4)
        assert bench.settled[1].value == "first"
        assert bench.settled[2].retry_in == timedelta(seconds=60)
        assert bench.settled[3].error == "ValueError: odd"
        assert bench.settled[4].value == "rest"

    run(test)


def test_what_was_said_of_an_item_stays_although_the_handler_goes_on_with_the_same_dict() -> None:
    app = App()

    @app.task(name="many", batch=3)
    async def many(items: list[Item]) -> None:
        result: dict[str, Any] = {}
        for item in items:
            result["n"] = item["n"]
            item.done(result)
        result["n"] = object()

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, 3)
        await bench.all_settled(3)
        assert bench.results() == {n: (Result.SUCCEEDED, {"n": n}) for n in (1, 2, 3)}

    run(test)


def test_an_exception_fails_those_of_which_nothing_was_said() -> None:
    app = App()

    @app.task(name="many", batch=2)
    def many(items: list[Item]) -> None:
        items[0].done()
        raise ValueError("no")

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        await bench.all_settled(2)
        assert [outcome.error for outcome in bench.settled.values()] == [None, "ValueError: no"]

    run(test)


def test_a_wrong_answer_fails_all() -> None:
    app = App()

    @app.task(name="many", batch=2)
    def many(items: list[Item]) -> Any:
        return [1]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        await bench.all_settled(2)
        assert {outcome.error for outcome in bench.settled.values()} == {
            "batch: a handler returns None or a list of 2 results, not 1 of them"
        }

    run(test)


def test_a_call_that_takes_too_long_times_out_and_frees_its_place() -> None:
    app = App()

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


def test_a_call_that_cancels_itself_fails_all_of_which_nothing_was_said() -> None:
    app = App()

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


def test_runs_time_out_when_their_call_has_ended_and_what_it_says_meanwhile_counts() -> None:
    app, go = App(), asyncio.Event()
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
    app, free = App(), asyncio.Event()

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await free.wait()
        await free.wait()

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, timeout_s=0.05, kill_after_s=0.1)
        await asyncio.sleep(0.15)
        assert bench.settled == {}
        await bench.all_settled(2)
        assert {outcome.result for outcome in bench.settled.values()} == {Result.TIMED_OUT}
        assert bench.executor.abandoned == 1
        free.set()
        await bench.until(lambda: bench.executor.abandoned == 0)

    run(test)


def test_one_that_is_cancelled_leaves_and_the_call_goes_on_for_the_others() -> None:
    app, go = App(), asyncio.Event()
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
        bench.runner.end([one.key], Ended.CANCEL)
        await bench.all_settled(1)
        go.set()
        await bench.all_settled(2)
        assert [outcome.result for outcome in bench.settled.values()] == [Result.CANCELLED, Result.SUCCEEDED]
        go.clear()
        both = bench.take(3, 4)
        await bench.until(lambda: len(bench.runner) == 2 and bench.runner.room() == 1)
        bench.runner.end([claim.key for claim in both], Ended.CANCEL)
        await bench.until(lambda: bench.runner.room() == 2)
        assert ended == ["returned", "cancelled"]
        assert other.id in bench.settled

    run(test)


@pytest.mark.parametrize("in_thread", [True, False])
def test_at_a_stop_runs_are_given_up_when_their_call_has_ended_and_what_it_says_meanwhile_counts(
    in_thread: bool,
) -> None:
    app, called, stopped, go = App(), threading.Event(), threading.Event(), threading.Event()

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
        bench.runner.end_all(Ended.SHUTDOWN)
        await bench.until(stopped.is_set)
        await asyncio.sleep(0.1)
        assert bench.settled == {}, "another worker would run them beside this call"
        go.set()
        await bench.runner.idle(lambda: False)
        assert [bench.settled[n].result for n in (1, 2, 3)] == [
            Result.SUCCEEDED, Result.FAILED, Result.INTERRUPTED
        ]  # fmt: skip
        assert bench.settled[1].value == "paid"
        assert bench.settled[3].error == Ended.SHUTDOWN.value

    run(test)


def test_what_a_call_returns_although_it_was_stopped_counts_as_it_does_of_one_run() -> None:
    app, called = App(), asyncio.Event()

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
        bench.runner.end_all(Ended.SHUTDOWN)
        await bench.runner.idle(lambda: False)
        assert bench.results() == {1: (Result.SUCCEEDED, "done all the same"), 2: (Result.FAILED, None)}

    run(test)


def test_at_a_stop_runs_of_a_call_that_does_not_end_are_given_up_after_kill_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "ABANDON_MARGIN_S", 0.05)
    monkeypatch.setattr(batches, "MARGIN_S", 0.1)
    app, called, free = App(), asyncio.Event(), asyncio.Event()

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
        bench.runner.end_all(Ended.SHUTDOWN)
        await asyncio.sleep(0.05)
        assert bench.settled == {}
        await bench.all_settled(2)
        assert {outcome.result for outcome in bench.settled.values()} == {Result.INTERRUPTED}
        assert len(bench.runner) == 0
        await bench.until(lambda: bench.executor.abandoned == 1)
        free.set()
        await bench.until(lambda: bench.executor.abandoned == 0)

    run(test)


def test_the_last_of_a_call_to_be_cancelled_waits_for_its_end() -> None:
    app, called, go = App(), asyncio.Event(), asyncio.Event()

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


def test_one_that_is_cancelled_while_it_gathers_is_not_called() -> None:
    app, calls = App(), []

    @app.task(name="many", batch=3, batch_wait=0.2)
    async def many(items: list[Item]) -> None:
        calls.append([item["n"] for item in items])

    async def test() -> None:
        bench = Bench(app)
        one, _ = bench.take(1, 2)
        await bench.until(lambda: len(bench.runner) == 2)
        bench.runner.end([one.key], Ended.CANCEL)
        await bench.all_settled(2)
        assert calls == [[2]]

    run(test)


def test_calls_take_places_and_other_tasks_have_theirs() -> None:
    app, go = App(), asyncio.Event()
    running = 0
    most = 0

    @app.task(name="many", batch=2, batch_wait=0.01)
    async def many(items: list[Item]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    @app.task(name="one")
    async def one(n: int) -> int:
        return n

    async def test() -> None:
        bench = Bench(app, concurrency=2)
        bench.take(1, 2, 3, 4)
        await bench.until(lambda: running == 2)
        assert bench.runner.room() == 0
        bench.take(5, 6)
        bench.take(7, task="one")
        go.set()
        await bench.all_settled(7)
        assert most == 2
        assert bench.settled[7].value == 7

    run(test)


def test_a_call_gets_a_place_however_much_other_work_there_is() -> None:
    app, called = App(), asyncio.Event()
    made = 0

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        called.set()

    @app.task(name="one")
    async def one(n: int) -> None:
        nonlocal made
        made += 1
        await asyncio.sleep(0)

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        bench.take(*range(3, 2000), task="one")
        async with asyncio.timeout(10):
            await called.wait()
        assert made < 100
        await bench.all_settled(1999)
        assert bench.runner.room() >= 2

    run(test)


def test_other_work_has_its_turns_between_calls() -> None:
    app, calls, before = App(), 0, list[int]()

    @app.task(name="many", batch=1)
    async def many(items: list[Item]) -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.001)

    @app.task(name="one")
    async def one(n: int) -> None:
        before.append(calls)

    async def test() -> None:
        bench = Bench(app, concurrency=1)
        for n in range(100, 150):
            bench.take(n)
            bench.take(n + 100, task="one")
        await bench.all_settled(100)
        assert before[0] <= 1
        assert before[25] <= 30

    run(test)


def test_attempts_whose_call_waits_for_a_place_count_as_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PARKED_S", 60.0)
    app, go = App(), asyncio.Event()

    @app.task(name="many", batch=3, batch_wait=0.05)
    async def many(items: list[Item]) -> None:
        return None

    @app.task(name="one")
    async def one(n: int) -> None:
        if n < 0:
            await go.wait()

    async def test() -> None:
        bench = Bench(app)
        bench.take(0, task="one")
        await bench.all_settled(1)
        bench.runner.capacity.pace.prefetch = 10
        bench.take(-1, task="one")
        bench.take(1, 2)
        await bench.until(lambda: len(bench.runner) == 3)
        assert bench.runner.room() == 11, "those that still gather take none"
        bench.take(-2, task="one")
        await asyncio.sleep(0.1)
        assert bench.runner.room() == 8
        bench.take(*range(3, 12))
        go.set()
        await bench.all_settled(14)
        assert bench.runner.room() >= 2

    run(test)


def test_a_worker_that_stops_serves_what_has_gathered() -> None:
    app = App()

    @app.task(name="many", batch=10, batch_wait=0.05)
    def many(items: list[Item]) -> None:
        return None

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        await bench.until(lambda: len(bench.runner) == 2)
        bench.runner.stop()
        await bench.runner.idle(lambda: False)
        assert len(bench.settled) == 2

    run(test)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "task x: batch: expected a whole number from 1 to 10000, got 0"),
        ({"batch": True}, "task x: batch: expected a whole number from 1 to 10000, got True"),
        ({"batch": 2, "batch_wait": -1}, "task x: batch_wait: expected seconds from 0 to 3600, got -1"),
        ({"batch_wait": 1}, "task x: batch_wait: says how long a batch is gathered: add batch="),
        ({"batch": 2, "run_in": "process"}, 'task x: run_in="process": is for one run at a time, not for a batch'),
        ({"batch": 2, "capture": True}, "task x: capture: is for one run at a time, not for a batch"),
    ],
)
def test_wrong_batches_are_refused(options: dict[str, Any], message: str) -> None:
    def x(items: list[Item]) -> None: ...

    with pytest.raises(TaskError) as raised:
        App().task(name="x", **options)(x)
    assert str(raised.value) == message


def test_a_handler_that_does_not_take_a_list_is_refused() -> None:
    def x() -> None: ...

    with pytest.raises(TaskError, match="its handler is called with one argument, the list of items"):
        App().task(name="x", batch=2)(x)


def test_one_run_alone_is_called_as_a_batch_of_one() -> None:
    app = App()

    @app.task(name="many", batch=2)
    def many(items: list[Item]) -> list[Any]:
        if items[0]["n"] == 2:
            items[0].fail(ValueError("two"))
        return [ValueError("three") if item["n"] == 3 else item["n"] for item in items]

    @app.task(name="later", batch=2)
    async def later(items: list[Item]) -> None:
        items[0].done("done")

    assert many.prepare({"n": 1}, None)() == 1
    for n, message in ((2, "two"), (3, "three")):
        with pytest.raises(ValueError, match=message):
            many.prepare({"n": n}, None)()
    assert asyncio.run(later.prepare({}, None)()) == "done"
