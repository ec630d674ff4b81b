"""An attempt that never waits comes to what it comes to where its executor makes it step by step."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from pgsched import Retry
from pgsched.execute.python import PythonExecutor
from pgsched.model import Outcome
from pgsched.worker.slots import not_bare
from tests.unit.test_slots import Stage, play


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


HANDLERS = [
    returns, returns_what_cannot_be_kept, fails, asks_to_be_tried_again, exits, is_interrupted, says_it_was_cancelled,
    cancels_itself, cancels_itself_and_says_so, cancels_itself_and_waits, waits_and_returns, waits_and_fails,
    waits_for_others, gives_a_future,
]  # fmt: skip


def told(handler: Callable[[], Any], *, at_once: bool) -> list[tuple[str, Outcome]]:
    """What becomes of two attempts of it and of one of another task, in one slot."""
    if not inspect.iscoroutinefunction(handler):
        handler = (
            inspect.markcoroutinefunction(handler) if hasattr(inspect, "markcoroutinefunction") else wrapped(handler)
        )
    stage = Stage({"it": handler, "other": returns})
    if not at_once:
        stage.slots.bare = not_bare

    async def scene(stage: Stage) -> None:
        stage.give("it", "it", "other")
        await stage.all_told(3)

    play(stage, scene)
    return stage.told


def wrapped(handler: Callable[[], Any]) -> Any:
    async def function() -> Any:
        return await handler()

    return function


@pytest.mark.parametrize("handler", HANDLERS)
def test_an_attempt_comes_to_the_same_with_a_first_step_of_its_own(handler: Callable[[], Any]) -> None:
    ways = [told(handler, at_once=at_once) for at_once in (True, False)]
    assert ways[0] == ways[1]
    assert ways[0][2][0] == "other"
    assert all("/pgsched/worker/" not in (outcome.traceback or "") for _, outcome in ways[0])


def test_what_is_made_at_once_is_what_needs_nothing_but_its_arguments() -> None:
    async def scene() -> None:
        stage = Stage({"t": returns})
        executor = stage.slots.executors["python"]
        assert isinstance(executor, PythonExecutor)
        (claim,) = stage.give("t")
        handler = executor.bare(claim)
        assert handler is not None and handler.function is returns
        for other in (
            claim._replace(kind="sql"), claim._replace(task="unknown"), claim._replace(args={"more": 1}),
            claim._replace(args=[]), claim._replace(args=None),
        ):  # fmt: skip
            assert executor.bare(other) is None

    asyncio.run(scene())


@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_being_begun_is_among_what_is_running(at_once: bool) -> None:
    seen: list[list[tuple[str, bool]]] = []

    async def looks() -> None:
        task = asyncio.current_task()
        seen.append([(one.claim.task, one.is_made_by(task)) for one in stage.slots.running()])

    stage = Stage({"looks": looks})
    if not at_once:
        stage.slots.bare = not_bare

    async def scene(stage: Stage) -> None:
        stage.give("looks", "looks")
        await stage.all_told(2)

    play(stage, scene)
    assert seen == [[("looks", True)]] * 2
    assert stage.slots.running() == []
