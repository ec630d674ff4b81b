"""An attempt that the runner makes inline has the same outcome as one that the executor makes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from pgsched import Retry, Run
from pgsched.core.model import Outcome
from pgsched.execute.python.executor import PythonExecutor
from tests.support.stage import Stage, play, staged


async def returns() -> int:
    return 5


async def returns_what_cannot_be_kept() -> object:
    return object()


async def fails() -> None:
    raise ValueError("no")


async def asks_to_be_tried_again() -> None:
    raise Retry(after=3)


async def exits() -> None:
    raise SystemExit(3)


async def is_interrupted() -> None:
    raise KeyboardInterrupt


async def says_it_was_cancelled() -> None:
    raise asyncio.CancelledError


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancels_itself() -> str:
    this_task().cancel()
    return "all the same"


async def cancels_itself_and_says_so() -> None:
    this_task().cancel()
    raise asyncio.CancelledError


async def cancels_itself_and_waits() -> None:
    this_task().cancel()
    await asyncio.sleep(0)


async def waits_and_returns() -> int:
    await asyncio.sleep(0.01)
    return 6


async def waits_and_fails() -> None:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(10)


async def waits_for_others() -> list[int]:
    return await asyncio.gather(waits_and_returns(), returns())


def gives_a_future() -> asyncio.Future[int]:
    return asyncio.ensure_future(waits_and_returns())


async def says_and_returns(run: Run) -> int:
    run.log("said", attempt=run.attempt)
    return run.id


async def says_and_fails(run: Run) -> None:
    run.log("said")
    raise ValueError("no")


async def says_waits_and_returns(run: Run) -> str:
    run.log("said")
    await asyncio.sleep(0.01)
    run.log("and more")
    return "said"


async def says_waits_and_fails(run: Run) -> None:
    await says_waits_and_returns(run)
    raise ValueError("no")


async def ends_it_by_itself(run: Run) -> str:
    """Settle the run itself, as `run.transaction()` does."""
    run.own.settling(True)
    return "not kept"


async def ends_it_by_itself_and_fails(run: Run) -> None:
    run.own.settling(True)
    raise ValueError("no")


async def waits_and_ends_it_by_itself(run: Run) -> None:
    await asyncio.sleep(0.01)
    run.own.settling(True)
    raise ValueError("no")


async def ends_it_by_itself_and_waits(run: Run) -> None:
    run.own.settling(True)
    await asyncio.sleep(0.01)
    raise ValueError("no")


async def says_and_cancels_itself(run: Run) -> None:
    run.log("said")
    this_task().cancel()
    raise asyncio.CancelledError


async def says_waits_and_cancels_itself(run: Run) -> None:
    await says_waits_and_returns(run)
    await cancels_itself_and_waits()


async def needs(what: int) -> int:
    """The tests do not give this handler its argument."""
    return what


async def has_a_default(what: int = 5) -> int:
    return what


async def asks_how_long_it_has(run: Run) -> list[Any]:
    left = run.seconds_left()
    return [left, run.extend(5), run.deadline, run.cancelled.is_set()]


HANDLERS = [
    says_and_returns, says_and_fails, says_waits_and_returns, says_waits_and_fails, ends_it_by_itself,
    says_and_cancels_itself, says_waits_and_cancels_itself, needs, has_a_default, ends_it_by_itself_and_fails,
    waits_and_ends_it_by_itself, ends_it_by_itself_and_waits, asks_how_long_it_has, returns,
    returns_what_cannot_be_kept, fails, asks_to_be_tried_again, exits, is_interrupted, says_it_was_cancelled,
    cancels_itself, cancels_itself_and_says_so, cancels_itself_and_waits, waits_and_returns, waits_and_fails,
    waits_for_others, gives_a_future,
]  # fmt: skip


def told(handler: Callable[..., Any], *, at_once: bool) -> list[tuple[str, Outcome]]:
    """Return the outcomes of two attempts of the handler and one of another task, all in one place."""
    if not inspect.iscoroutinefunction(handler):
        handler = (
            inspect.markcoroutinefunction(handler) if hasattr(inspect, "markcoroutinefunction") else wrapped(handler)
        )
    stage = staged({"it": handler, "other": returns}, at_once=at_once)

    async def scene(stage: Stage) -> None:
        stage.give("it", "it", "other")
        await stage.all_told(3)

    play(stage, scene)
    return stage.told


def wrapped(handler: Callable[..., Any]) -> Any:
    async def function() -> Any:
        return await handler()

    return function


@pytest.mark.parametrize("handler", HANDLERS)
def test_an_inline_attempt_has_the_same_outcome_as_one_of_the_executor(handler: Callable[..., Any]) -> None:
    ways = [told(handler, at_once=at_once) for at_once in (True, False)]
    assert ways[0] == ways[1]
    assert ways[0][2][0] == "other"
    assert all("/pgsched/worker/" not in (outcome.traceback or "") for _, outcome in ways[0])


def test_only_a_known_task_with_fitting_arguments_is_made_inline() -> None:
    async def scene() -> None:
        stage = Stage({"t": returns})
        executor = stage.runner.executors["task"]
        assert isinstance(executor, PythonExecutor)
        (claim,) = stage.give("t")
        handler = executor.inline_handler(claim)
        assert handler is not None and handler.function is returns
        for other in (
            claim._replace(kind="sql"), claim._replace(task="unknown"), claim._replace(args={"more": 1}),
            claim._replace(args=[]), claim._replace(args=None),
        ):  # fmt: skip
            assert executor.inline_handler(other) is None

    asyncio.run(scene())


@pytest.mark.parametrize("args", [{}, {"n": 2}])
def test_an_inline_attempt_may_omit_arguments_with_a_default(args: dict[str, Any]) -> None:
    async def doubles(run: Run, n: int = 1) -> int:
        return 2 * n

    stage = staged({"doubles": doubles}, at_once=True)
    begun: list[bool] = []
    inline_handler = stage.runner.inline.handler_of
    stage.runner.inline.handler_of = lambda claim: (found := inline_handler(claim), begun.append(found is not None))[0]

    async def scene(stage: Stage) -> None:
        stage.give("doubles", args=args)
        await stage.all_told(1)

    play(stage, scene)
    assert [outcome.value for _, outcome in stage.told] == [2 * args.get("n", 1)]
    assert begun == [True]


@pytest.mark.parametrize("at_once", [True, False])
def test_the_arguments_of_each_run_of_a_task_are_checked(at_once: bool) -> None:
    async def takes(what: int, more: int = 0) -> int:
        return what + more

    stage = staged({"takes": takes}, at_once=at_once)

    async def scene(stage: Stage) -> None:
        for args in ({"what": 1}, {"what": 1, "more": 1}, {"more": 1}, {"what": 1, "less": 1}, {"what": 2}):
            stage.give("takes", args=args)
        await stage.all_told(5)

    play(stage, scene)
    assert [(str(outcome.result), outcome.value, outcome.traceback) for _, outcome in stage.told] == [
        ("succeeded", 1, None), ("succeeded", 2, None), ("failed", None, None), ("failed", None, None),
        ("succeeded", 2, None),
    ]  # fmt: skip


def test_attributes_of_a_function_do_not_change_its_task() -> None:
    async def marked(n: int = 1) -> int:
        return n

    vars(marked).update(required=True, inline_names="bare", run_name="run", gathering=1, function=None, mine=5)
    stage = staged({"marked": marked}, at_once=True)

    async def scene(stage: Stage) -> None:
        stage.give("marked")
        await stage.all_told(1)

    play(stage, scene)
    assert stage.told[0][1].value == 1
