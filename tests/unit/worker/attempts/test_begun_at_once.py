"""Attempts behave the same whether the runner makes their first step itself, or leaves it to the executor."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from pgsched import Run
from pgsched.worker.attempts.attempt import EndReason
from tests.support.stage import Stage, play, staged


@pytest.mark.parametrize("at_once", [True, False])
def test_an_attempt_in_its_first_step_is_listed_as_running(at_once: bool) -> None:
    seen: list[list[tuple[str, bool]]] = []

    async def looks() -> None:
        task = asyncio.current_task()
        seen.append([(one.claim.task, one.is_made_by(task)) for one in stage.runner.running()])

    stage = staged({"looks": looks}, at_once=at_once)

    async def scene(stage: Stage) -> None:
        stage.give("looks", "looks")
        await stage.all_told(2)

    play(stage, scene)
    assert seen == [[("looks", True)]] * 2
    assert stage.runner.running() == []


@pytest.mark.parametrize("at_once", [True, False])
def test_run_cancelled_is_set_before_a_waiting_handler_is_cancelled(at_once: bool) -> None:
    seen: list[bool] = []
    begun = asyncio.Event()

    async def waits(run: Run) -> None:
        run.log("said")
        begun.set()
        try:
            await asyncio.sleep(10)
        finally:
            seen.append(run.cancelled.is_set())

    stage = staged({"waits": waits}, at_once=at_once)

    async def scene(stage: Stage) -> None:
        claims = stage.give("waits")
        await begun.wait()
        assert stage.runner.attempt_of(claims[0].key) is not None
        stage.runner.end([claims[0].key], EndReason.CANCEL)
        await stage.all_told(1)

    play(stage, scene)
    assert seen == [True]
    (_, outcome), = stage.told  # fmt: skip
    assert (str(outcome.result), outcome.error, outcome.log_tail) == ("cancelled", EndReason.CANCEL.value, "said\n")


@pytest.mark.parametrize("extends", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_extension_before_the_first_wait_holds_afterwards(at_once: bool, extends: bool) -> None:
    left: list[float | None] = []

    async def slow(run: Run) -> None:
        if extends:
            run.extend(20)
        left.append(run.seconds_left())
        await asyncio.sleep(0.1)

    stage = staged({"slow": slow}, at_once=at_once)

    async def scene(stage: Stage) -> None:
        stage.give("slow", timeout=timedelta(seconds=0.05))
        await stage.all_told(1)

    play(stage, scene)
    assert stage.results() == [("slow", "succeeded" if extends else "timed_out")]
    assert left[0] is not None and (left[0] > 19) is extends


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("at_once", [True, False])
def test_log_lines_after_the_end_of_an_attempt_are_not_recorded(at_once: bool, waits: bool) -> None:
    runs: list[Run] = []

    async def keeps(run: Run) -> None:
        runs.append(run)
        if waits:
            await asyncio.sleep(0)

    stage = staged({"keeps": keeps}, at_once=at_once)

    async def scene(stage: Stage) -> None:
        stage.give("keeps")
        await stage.all_told(1)
        runs[0].log("too late")

    play(stage, scene)
    assert runs[0].record is not None and runs[0].record.closed and not runs[0].record.has_output


@pytest.mark.parametrize("at_once", [True, False])
def test_a_handler_that_blocked_the_loop_past_its_timeout_may_still_succeed(at_once: bool) -> None:
    async def late(run: Run) -> None:
        time.sleep(0.03)  # noqa: ASYNC251
        await asyncio.sleep(0)

    async def too_late(run: Run) -> None:
        await late(run)
        await asyncio.sleep(0.1)

    stage = staged({"late": late, "too late": too_late}, at_once=at_once)

    async def scene(stage: Stage) -> None:
        stage.give("late", "too late", timeout=timedelta(seconds=0.02))
        await stage.all_told(2)

    play(stage, scene)
    assert stage.results() == [("late", "succeeded"), ("too late", "timed_out")]
