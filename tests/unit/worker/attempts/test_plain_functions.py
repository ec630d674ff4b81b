"""Attempts of plain functions, which run in threads."""

from __future__ import annotations

import asyncio
import contextvars
import time
from typing import Any

import pytest

from pgsched import log
from tests.support.attempts.plain_functions import Long, give_all, python
from tests.support.executing import holds
from tests.support.stage import Stage, loop_turns, play

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="clean")


def quick() -> None:
    pass


def returns(i: int = 5) -> int:
    return i


def fails() -> None:
    raise ValueError("no")


# ---- outcomes


@pytest.mark.parametrize("args", [{"j": 1}, {"i": 1, "j": 1}], ids=str)
def test_arguments_that_do_not_fit_are_refused(args: dict[str, Any]) -> None:
    stage = Stage({"t": returns})

    give_all(stage, "t", args=args)
    (_, outcome) = stage.told[0]
    assert (str(outcome.result), outcome.retry) == ("failed", False), "there is no other release of the task"


def test_each_attempt_has_a_context_of_its_own() -> None:
    seen: list[Any] = []

    def looks() -> None:
        seen.append((VARIABLE.get(), log.ATTEMPT.get().id))
        VARIABLE.set("dirty")

    stage = Stage({"t": looks})

    async def scene(stage: Stage) -> None:
        claims = stage.give(*"tttt")
        await stage.all_told(4)
        assert seen == [("clean", claim.id) for claim in claims]

    play(stage, scene)


def needs(i: int) -> int:
    return i


def test_a_missing_argument_is_refused() -> None:
    stage = Stage({"t": needs})

    give_all(stage, "t")
    assert stage.told[0][1].retry is False


def test_a_worker_with_a_limit_of_runs_starts_no_more() -> None:
    stage = Stage({"t": quick})
    stage.runner.buffer.runs_left = 2
    stage.runner.buffer.on_last = stage.runner.stop

    async def scene(stage: Stage) -> None:
        stage.give(*"tttt")
        await stage.all_told(2)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")] * 2


def test_a_claim_that_is_given_again_is_attempted_once() -> None:
    long = Long()
    stage = long.stage(concurrency=2)
    stage.runner.capacity.busy = 1

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.capacity.busy -= 1
        stage.runner.take([claims[0]], time.monotonic())
        await stage.all_told(3)  # the other place has made the other attempts
        await loop_turns()
        long.go.set()
        await stage.all_told(4)
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert (long.seen, len(stage.told)) == ([0, 1, 2, 3], 4)


def test_a_running_attempt_is_listed_and_takes_a_place() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        assert [one.claim for one in stage.runner.running()] == [claims[0]]
        assert len(stage.runner) == 1
        assert stage.runner.room() == 0
        stage.runner.capacity.pace.prefetch, stage.runner.capacity.last_end_at = 10, time.monotonic()
        assert stage.runner.room() == 7
        found = stage.runner.attempt_of(claims[0].key)
        assert found is not None
        assert found.claim is claims[0]
        assert stage.runner.attempt_of(claims[1].key) is None
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)


def test_a_place_whose_task_is_cancelled_by_an_ended_handler_is_replaced() -> None:
    long = Long()
    places: list[asyncio.Task[Any]] = []

    def work(i: int = -1) -> int:
        return long(i)

    async def leaves_its_task() -> None:
        task = asyncio.current_task()
        assert task is not None
        places.append(task)

    stage = Stage({"a": leaves_its_task, "t": work})

    async def scene(stage: Stage) -> None:
        stage.give("a")
        await long.has_begun(stage)
        places[0].cancel()
        await holds(places[0].done)
        long.go.set()
        await stage.all_told(5)
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert sorted(str(outcome.result) for _, outcome in stage.told) == ["failed", *["succeeded"] * 4]
    assert stage.runner.capacity.busy == 0


def test_an_ended_attempt_is_settled_although_its_place_is_cancelled() -> None:
    """The task of its place is cancelled while the next attempt is running."""
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        stage.give("t", args={"i": 5})
        stage.give("t", args={"i": 0})
        await holds(long.begun.is_set)
        (task,) = stage.runner.tasks.all
        task.cancel()
        await stage.all_told(2)
        long.go.set()
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert [(str(outcome.result), outcome.value) for _, outcome in stage.told] == [("succeeded", 5), ("failed", None)]


# ---- leases


def test_no_attempt_begins_for_a_claim_whose_deadline_has_passed() -> None:
    """A process that was frozen may have lost its claims."""
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        stage.runner.leases.soonest = 0.0
        stage.runner.leases.past = lambda claim, now: True  # type: ignore[method-assign]
        long.go.set()
        await stage.all_told(4)
        assert long.seen == [0]

    play(stage, scene)
    assert stage.results() == [("t", "succeeded"), *[("t", "released")] * 3]


# ---- logs


def test_log_lines_at_the_end_of_an_attempt_name_its_own_run() -> None:
    stage = Stage({"t": fails})
    said: list[Any] = []
    stage.runner.settle = lambda claims, outcome: said.append((claims[0].id, log.ATTEMPT.get().id))

    async def scene(stage: Stage) -> None:
        stage.give(*"ttt")
        await holds(lambda: len(said) == 3)

    play(stage, scene)
    assert said == [(1, 1), (2, 2), (3, 3)]


# ---- threads


def test_an_attempt_for_which_no_thread_can_start_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({"t": quick})

    def none(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(python(stage)._threads, "submit", none)

    give_all(stage, *"ttt")
    assert [(str(outcome.result), outcome.retry) for _, outcome in stage.told] == [("failed", True)] * 3
