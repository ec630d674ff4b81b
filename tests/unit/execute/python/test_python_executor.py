"""Python handlers on the loop and in threads: arguments, results, errors, and handlers that do not stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pgsched import App, Discard, Retry, Run
from pgsched.core.model import Outcome, Result
from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import cancel_when, claim, execute, holds
from tests.support.waiting import wait_until


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def outcomes_of(handler: Callable[..., Any], args: Any = None) -> list[Outcome]:
    """Return the outcomes of a sync handler and of an async one that does the same."""

    async def as_async(*given: Any, **named: Any) -> Any:
        return handler(*given, **named)

    made = []
    for function in (handler, as_async):
        app = App("test")
        app.task(name="it")(function)
        made.append(execute(PythonExecutor(app.tasks, 2), claim("task", "it", args)))
    return made


def test_handlers_get_their_arguments_by_name_or_by_position() -> None:
    def add(left: int, right: int = 1) -> int:
        return left + right

    for args in ({"left": 2, "right": 3}, [2, 3]):
        assert [outcome.value for outcome in outcomes_of(add, args)] == [5, 5]


def test_a_handler_may_ask_for_its_run() -> None:
    app = App("test")

    @app.task
    def described(run: Run, word: str) -> list[Any]:
        return [run.id, run.job_id, run.attempt, word, run.cancelled.is_set()]

    outcome = execute(PythonExecutor(app.tasks, 1), claim("task", described.name, {"word": "hi"}))
    assert outcome.value == [7, 3, 1, "hi", False]


def test_sync_handlers_run_in_threads_and_async_handlers_on_the_loop() -> None:
    app = App("test")

    @app.task
    def beside() -> str:
        return threading.current_thread().name

    @app.task
    async def on() -> str:
        return threading.current_thread().name

    executor = PythonExecutor(app.tasks, 1)
    assert execute(executor, claim("task", beside.name)).value == "pgsched-handler"
    assert execute(executor, claim("task", on.name)).value == threading.current_thread().name


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ValueError("wrong\n  number"), "ValueError: wrong number"),
        (ValueError(), "ValueError"),
        (Unprintable(), "Unprintable: (its text raises RuntimeError)"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError("mine"), "CancelledError: mine"),
        (ValueError("nul\0 and \ud800"), "ValueError: nul\ufffd and ?"),
    ],
)
def test_whatever_a_handler_raises_becomes_a_failure(raised: BaseException, error: str) -> None:
    def handler() -> None:
        raise type(raised)(*raised.args)  # a new error: raising the old one again would add to its traceback

    for outcome in outcomes_of(handler):
        assert (outcome.result, outcome.error, outcome.retry) == (Result.FAILED, error, True)
        assert outcome.traceback is not None and "in handler" in outcome.traceback
        assert "\0" not in outcome.traceback and "_run_" not in outcome.traceback


def test_a_very_long_error_is_cut() -> None:
    def handler() -> None:
        raise ValueError("x" * 1_000_000)

    for outcome in outcomes_of(handler):
        assert len(outcome.error or "") <= 1000 and len(outcome.traceback or "") < 20_000


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "the result (object) is not JSON"),
        (float("nan"), "the result (float) is not JSON"),
        ({1, float("inf")}, "the result (set) is not JSON"),
        ("a\0b", "the result (str) holds a NUL character"),
        ("\ud800", "the result (str) holds half a surrogate pair"),
        ("x" * 1_100_000, "the result (str) takes 1,100,002 bytes"),
        ([1] * 400_000, "the result (list) takes"),
    ],
)
def test_a_result_that_cannot_be_kept_fails_for_good(value: Any, reason: str) -> None:
    for outcome in outcomes_of(lambda: value):
        assert (outcome.result, outcome.retry) == (Result.FAILED, False)
        assert outcome.error is not None and outcome.error.startswith(reason)


def test_a_result_that_is_both_deep_and_large_is_kept() -> None:
    value: Any = "x" * 200_000
    for _ in range(600):
        value = [value]
    assert [(outcome.result, outcome.value is value) for outcome in outcomes_of(lambda: value)] == [
        (Result.SUCCEEDED, True)
    ] * 2


def test_a_result_with_escaped_backslashes_is_no_nul() -> None:
    assert [outcome.value for outcome in outcomes_of(lambda: "\\u0000")] == ["\\u0000"] * 2


def test_a_result_that_refers_to_itself_fails_for_good() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert [outcome.retry for outcome in outcomes_of(lambda: loop)] == [False, False]


def test_a_handler_can_ask_for_a_retry_or_for_none() -> None:
    def later() -> None:
        raise Retry(after=90, message="the server is busy")

    def never() -> None:
        raise Discard("no such customer")

    for outcome in outcomes_of(later):
        assert (outcome.retry, outcome.retry_in) == (True, timedelta(seconds=90))
        assert outcome.error == "Retry: the server is busy"
    for outcome in outcomes_of(never):
        assert (outcome.retry, outcome.error) == (False, "Discard: no such customer")


@pytest.mark.parametrize("after", [-1, float("inf"), timedelta(days=10_000)])
def test_a_retry_with_an_invalid_delay_uses_the_back_off(after: Any) -> None:
    def handler() -> None:
        raise Retry(after=after)

    assert [outcome.retry_in for outcome in outcomes_of(handler)] == [None, None]


def test_an_unknown_task_is_retried_and_arguments_that_do_not_fit_are_not() -> None:
    app = App("test")

    @app.task
    def one(number: int) -> int:
        return number

    executor = PythonExecutor(app.tasks, 1)
    for given in (claim("task", "two"), claim("task", one.name, {"nmber": 1}), claim("task", one.name, 5)):
        outcome = execute(executor, given)
        assert (outcome.result, outcome.retry) == (Result.FAILED, given.task == "two")
    misspelt = execute(executor, claim("task", one.name, {"nmber": 1})).error or ""
    assert "missing a required argument: 'number'; it takes (number" in misspelt
    assert misspelt.endswith("; it has no 'nmber'; did you mean number?")


def test_cancelling_an_async_handler_lets_it_clean_up() -> None:
    app, seen = App("test"), []

    @app.task
    async def sleeper() -> None:
        seen.append("on")
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            seen.append("clean")

    executor = PythonExecutor(app.tasks, 1)
    assert isinstance(cancel_when(executor, claim("task", sleeper.name), lambda: seen), asyncio.CancelledError)
    assert seen == ["on", "clean"] and executor.abandoned == 0


def test_a_sync_handler_that_heeds_run_cancelled_is_not_abandoned() -> None:
    app, seen = App("test"), []

    @app.task
    def patient(run: Run) -> None:
        seen.append("on")
        assert run.cancelled.wait(30)
        seen.append("stopped")

    executor = PythonExecutor(app.tasks, 1)
    assert isinstance(cancel_when(executor, claim("task", patient.name), lambda: seen), asyncio.CancelledError)
    assert seen == ["on", "stopped"] and executor.abandoned == 0


@pytest.mark.parametrize("batch", [None, 1])
def test_an_attempt_without_a_thread_is_a_failure_that_is_retried(
    batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("test")
    more: dict[str, Any] = {} if batch is None else {"batch": batch, "batch_wait": 0.01}
    app.task(name="t", **more)(lambda _=None: None)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    outcome = execute(PythonExecutor(app.tasks, 1), claim("task", "t"))
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert "can't start new thread" in (outcome.error or "")


def test_a_stuck_thread_is_counted_until_it_ends_and_does_not_take_a_place() -> None:
    app, seen, release = App("test"), [], threading.Event()

    @app.task
    def stuck() -> None:
        seen.append("on")
        release.wait(30)

    @app.task
    def quick() -> str:
        return "done"

    async def main() -> None:
        executor = PythonExecutor(app.tasks, 1)
        work = asyncio.ensure_future(executor.execute(claim("task", stuck.name, kill_after_s=3600)))
        await holds(lambda: seen)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert executor.abandoned == 1
        assert (await executor.execute(claim("task", quick.name))).value == "done"
        release.set()
        await holds(lambda: executor.abandoned == 0)
        await executor.close()

    asyncio.run(main())


def test_threads_are_used_again_and_end_with_the_executor() -> None:
    app = App("test")

    @app.task
    def ident() -> int:
        return threading.get_ident()

    async def main() -> set[Any]:
        executor = PythonExecutor(app.tasks, 2)
        found = set()
        for _ in range(20):
            found.add((await executor.execute(claim("task", ident.name))).value)
        await executor.close()
        return found

    used = asyncio.run(main())
    assert len(used) <= 3
    wait_until(lambda: not used & {thread.ident for thread in threading.enumerate()}, what="the end of the threads")
