"""Attempts are isolated: what one handler leaves behind, cancels or refuses does not reach another attempt."""

from __future__ import annotations

import asyncio
import contextvars
from datetime import timedelta
from typing import Any

import pytest

from pgsched import Run, log
from pgsched.core.model import Result
from pgsched.worker.attempts import attempt
from tests.support.executing import holds
from tests.support.stage import Stage, briefly, play, quick

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="clean")


def test_context_variables_that_a_handler_sets_do_not_reach_the_next_one() -> None:
    seen: list[str] = []

    async def spoils() -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set("spoiled")

    stage = Stage({"spoils": spoils})

    async def scene(stage: Stage) -> None:
        stage.give(*["spoils"] * 5)
        await stage.all_told(5)

    play(stage, scene)
    assert seen == ["clean"] * 5


def test_a_handler_that_cancels_its_own_task_fails_alone() -> None:
    async def suicide() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(10)

    stage = Stage({"suicide": suicide, "quick": quick})

    async def scene(stage: Stage) -> None:
        stage.give("suicide", "quick", "suicide", "quick")
        await stage.all_told(4)

    play(stage, scene)
    assert stage.results() == [("suicide", "failed"), ("quick", "succeeded")] * 2
    assert "cancelled itself" in (stage.told[0][1].error or "")


@pytest.mark.parametrize("waits", [False, True])
def test_a_cancellation_that_a_handler_takes_back_reaches_no_other_attempt(waits: bool) -> None:
    async def thinks_again() -> None:
        if waits:
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        task.uncancel()

    stage = Stage({"quick": quick, "thinks_again": thinks_again, "briefly": briefly})

    async def scene(stage: Stage) -> None:
        stage.give("quick", "thinks_again", "briefly")
        await stage.all_told(3)

    play(stage, scene)
    assert {result for _, result in stage.results()} == {"succeeded"}


def test_a_timeout_before_the_handler_begins_reaches_no_other_attempt() -> None:
    async def at_once(run: Run) -> None:
        pass

    stage = Stage({"quick": quick, "at_once": at_once, "briefly": briefly})

    async def scene(stage: Stage) -> None:
        stage.give("quick")
        stage.give("at_once", timeout=timedelta(0))
        stage.give("briefly")
        await stage.all_told(3)

    play(stage, scene)
    assert stage.results()[2] == ("briefly", "succeeded")


def test_a_place_works_as_before_after_its_attempt_was_cancelled() -> None:
    async def long() -> None:
        await asyncio.sleep(3600)

    async def has_a_timeout() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(3600)

    stage = Stage({"long": long, "has_a_timeout": has_a_timeout})

    async def scene(stage: Stage) -> None:
        claim, *_ = stage.give("long", "has_a_timeout")
        await holds(lambda: len(stage.runner))
        stage.runner.beaten([], frozenset({claim.key}))
        await stage.all_told(2)

    play(stage, scene)
    assert stage.results() == [("long", "cancelled"), ("has_a_timeout", "succeeded")]


def test_a_swallowed_cancellation_keeps_the_result_and_reaches_no_other() -> None:
    async def swallows() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "done all the same"
        raise AssertionError

    async def asks() -> int:
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    stage = Stage({"swallows": swallows, "asks": asks})

    async def scene(stage: Stage) -> None:
        claim, *_ = stage.give("swallows", "asks")
        await holds(lambda: len(stage.runner))
        stage.runner.beaten([], frozenset({claim.key}))
        await stage.all_told(2)

    play(stage, scene)
    assert [outcome.value for _, outcome in stage.told] == ["done all the same", 0]


def test_a_timeout_is_settled_as_timed_out() -> None:
    async def long() -> None:
        await asyncio.sleep(3600)

    stage = Stage({"long": long})

    async def scene(stage: Stage) -> None:
        stage.give("long", timeout=timedelta(milliseconds=20))
        await stage.all_told(1)

    play(stage, scene)
    assert [(o.result, o.error) for _, o in stage.told] == [(Result.TIMED_OUT, "timed out after 0.02 s")]


def test_a_handler_that_refuses_to_stop_is_abandoned_and_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "ABANDON_MARGIN_S", 0.02)
    free = asyncio.Event()

    async def stubborn() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    stage = Stage({"stubborn": stubborn, "quick": quick})

    async def scene(stage: Stage) -> None:
        claim, *_ = stage.give("stubborn", "quick")
        await holds(lambda: len(stage.runner))
        stage.runner.beaten([], frozenset({claim.key}))
        await stage.all_told(2)
        assert stage.runner.capacity.abandoned == 1
        free.set()
        await holds(lambda: stage.runner.capacity.abandoned == 0)
        stage.give("quick", "quick")
        await stage.all_told(4)

    play(stage, scene)
    assert stage.results() == [("stubborn", "cancelled"), *[("quick", "succeeded")] * 3], "and nothing is told twice"


def test_run_cancelled_is_set_before_the_handler_is_cancelled() -> None:
    seen: list[tuple[str, bool]] = []

    async def looks(run: Run) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append(("cancelled", run.cancelled.is_set()))
            raise

    async def cancels_a_part(run: Run) -> None:
        part = asyncio.ensure_future(asyncio.sleep(3600))
        part.cancel()
        with pytest.raises(asyncio.CancelledError):
            await part
        seen.append(("its own", run.cancelled.is_set()))

    stage = Stage({"looks": looks, "cancels_a_part": cancels_a_part})

    async def scene(stage: Stage) -> None:
        claim, *_ = stage.give("looks", "cancels_a_part")
        await holds(lambda: len(stage.runner))
        stage.runner.beaten([], frozenset({claim.key}))
        await stage.all_told(2)

    play(stage, scene)
    assert seen == [("cancelled", True), ("its own", False)]
    assert stage.results() == [("looks", "cancelled"), ("cancels_a_part", "succeeded")]


def test_a_handler_that_cancels_its_task_later_costs_no_place() -> None:
    async def cancels_later() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)

    stage = Stage({"cancels_later": cancels_later, "quick": quick})

    async def scene(stage: Stage) -> None:
        for _ in range(20):
            stage.give("cancels_later")
            await asyncio.sleep(0.005)
        stage.give("quick")
        await holds(lambda: ("quick", "succeeded") in stage.results())

    play(stage, scene)


def test_a_context_variable_that_cannot_be_compared_ends_no_worker() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    odd: contextvars.ContextVar[Odd] = contextvars.ContextVar("odd")

    async def sets() -> None:
        odd.set(Odd())

    stage = Stage({"sets": sets})

    async def scene(stage: Stage) -> None:
        stage.give("sets", "sets", "sets")
        await stage.all_told(3)

    play(stage, scene)


def test_log_lines_about_the_last_run_of_a_worker_name_no_attempt() -> None:
    """Otherwise log lines would name the run that had the place before."""
    said: list[Any] = []

    async def scene() -> None:
        async def handler() -> None:
            said.append(log.ATTEMPT.get().task)

        stage = Stage({"t": handler})
        stage.runner.buffer.runs_left, stage.runner.buffer.on_last = 2, lambda: said.append(log.ATTEMPT.get())
        stage.give("t", "t")
        await asyncio.wait(stage.runner.tasks.all, timeout=10)

    asyncio.run(scene())
    assert said == ["t", None, "t"]
