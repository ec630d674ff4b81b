"""A runner makes attempts one after the other in one task: its places, its time slices, and its stop."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import weakref
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

from pgsched import Run
from pgsched.core.model import Claim, Result, Unreadable
from pgsched.worker.attempts import time_slice
from pgsched.worker.attempts.attempt import EndReason
from tests.support.executing import holds
from tests.support.stage import Stage, briefly, busy, play, quick
from tests.support.timing import took


def test_no_more_attempts_run_at_once_than_there_are_places() -> None:
    now, most = [], []

    def handler(name: str) -> Any:
        async def work() -> None:
            now.append(name)
            most.append(len(now))
            await asyncio.sleep(0)
            now.remove(name)

        return work

    stage = Stage({name: handler(name) for name in "abcdefgh"}, concurrency=3)

    async def scene(stage: Stage) -> None:
        stage.give(*"abcdefgh")
        await stage.all_told(8)
        assert len(stage.runner) == 0

    play(stage, scene)
    assert sorted(stage.results()) == [(name, "succeeded") for name in "abcdefgh"]
    assert max(most) == 3


def test_handlers_that_never_wait_let_the_loop_go_on() -> None:
    stage = Stage({"quick": quick})
    seen: list[int] = []

    async def scene(stage: Stage) -> None:
        stage.give(*["quick"] * 9000)
        while len(stage.told) < 9000:
            seen.append(len(stage.told))
            await asyncio.sleep(0)

    play(stage, scene)
    assert len(set(seen)) >= 3, "other tasks had several turns in between"


def test_the_time_slice_of_many_places_is_no_longer_than_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "SLICE_S", 0.01)
    made = 0

    async def busy() -> None:
        nonlocal made
        made += 1
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass

    stage = Stage({"busy": busy}, concurrency=10)

    async def scene(stage: Stage) -> None:
        stage.give(*["busy"] * 300)
        most = 0
        while len(stage.told) < 300:
            before = made
            await asyncio.sleep(0)
            most = max(most, made - before)
        assert 10 <= most <= 2 * 10 + 10  # those of a slice, and one of each place, which then sees the slice ended

    play(stage, scene)


def test_each_attempt_of_a_time_slice_gets_the_handler_for_its_arguments() -> None:
    """The handler of the attempt before is reused only for the same task and the same names of arguments."""
    seen: list[object] = []

    async def takes(i: int = 0, j: int = 0) -> None:
        seen.append((i, j))

    stage = Stage({"takes": takes, "quick": quick})

    async def scene(stage: Stage) -> None:
        name, now = "takes", time.monotonic()
        claims = stage.give(*[name] * 6, args={"i": 1, "j": 2})
        stage.runner.hand_back()
        stage.told.clear()
        args: list[Any] = [{"i": 1, "j": 2}, {"i": 1}, [3], Unreadable("too deep"), {"i": 4, "x": 5}, {"j": 2, "i": 1}]
        stage.runner.take([one._replace(args=given) for one, given in zip(claims, args, strict=True)], now)
        stage.give("quick")
        await stage.all_told(7)

    play(stage, scene)
    assert seen == [(1, 2), (1, 0), (3, 0), (1, 2)]
    wrong = [outcome.result for _, outcome in stage.told if outcome.result is not Result.SUCCEEDED]
    assert len(wrong) == 2


def test_after_a_stop_nothing_starts_and_waiting_claims_are_handed_back() -> None:
    go = asyncio.Event()

    async def waits() -> None:
        await go.wait()

    stage = Stage({"waits": waits, "quick": quick})

    async def scene(stage: Stage) -> None:
        stage.give("waits", "quick")
        await holds(lambda: len(stage.runner))
        stage.runner.stop()
        stage.give("quick")
        assert stage.runner.room() == 0
        stage.runner.hand_back()
        go.set()
        await stage.runner.idle(lambda: False)

    play(stage, scene)
    assert stage.results() == [("quick", "released")] * 2 + [("waits", "succeeded")]
    assert EndReason.SHUTDOWN.value in (stage.told[0][1].error or "")


def test_thousands_of_waiting_claims_are_released_at_once() -> None:
    """All leases of a worker end together if its process was stopped for longer than a lease."""
    go = asyncio.Event()

    async def scene(stage: Stage) -> None:
        _, *others = stage.give("long", *["quick"] * 8001)
        await holds(lambda: len(stage.runner) == 1)
        del others[4000]  # this claim stays
        assert took(lambda: stage.runner.end([claim.key for claim in reversed(others)], EndReason.DEADLINE)) < 0.5
        assert stage.results() == [("quick", "released")] * 8000
        go.set()
        await stage.all_told(8002)
        assert stage.results()[8000:] == [("long", "succeeded"), ("quick", "succeeded")]

    play(Stage({"long": go.wait, "quick": quick}), scene)


@pytest.mark.parametrize(("concurrency", "ahead"), [(1, 1), (3, 10), (8, 2), (1, 30), (4, 30)])
def test_the_claimer_hears_of_each_turn_with_room_and_of_few_others(concurrency: int, ahead: int) -> None:
    """Computing the room costs a tenth of an attempt, and no claim is made before the loop goes round."""
    stage, told = Stage({"busy": busy, "briefly": briefly}, concurrency), []

    async def scene(stage: Stage) -> None:
        runner, loop = stage.runner, asyncio.get_running_loop()
        runner.capacity.pace.took = lambda seconds, now, count=1: None  # type: ignore[method-assign]
        runner.capacity.pace.prefetch = ahead
        runner.settle = lambda claims, outcome: told.extend(["room" if runner.room() > 0 else "none"] * len(claims))
        runner.on_room = lambda: told.append("asked")

        def turn() -> None:
            told.append("turn")
            loop.call_soon(turn)

        turn()
        stage.give(*["busy", "briefly"] * 10, *["busy"] * 25)
        await holds(lambda: told.count("room") + told.count("none") == 45 and runner.is_idle())

    play(stage, scene)
    turns = [turn.split() for turn in " ".join(told).split("turn")]
    left = [turn for turn in turns if "room" in turn]
    assert left and all("asked" in turn[turn.index("room") :] for turn in left)
    assert sum("asked" in turn for turn in turns if "room" not in turn) <= ahead + 3 * concurrency


def test_the_outcomes_of_a_time_slice_are_settled_in_one_call_before_a_wait() -> None:
    async def fails() -> None:
        raise ValueError

    async def waits() -> None:
        await asyncio.sleep(0)
        seen.extend(told)

    handlers = {"quick": quick, "fails": fails, "waits": waits}
    stage, told, seen = Stage(handlers), [], []

    async def scene(stage: Stage) -> None:
        stage.runner.settle = lambda claims, outcome: told.append([claim.task for claim in claims])
        stage.runner.inline.time_slice.ends_at = time.monotonic() + 60
        stage.give(*["quick"] * 3, "fails", *["quick"] * 2, "waits", "quick")
        await holds(stage.runner.is_idle)
        assert seen == [["fails"], ["quick"] * 5]
        assert told == [*seen, ["waits"], ["quick"]]

    play(stage, scene)


@pytest.mark.parametrize("last", ["quick", "waits"])
def test_an_attempt_that_waits_keeps_no_claim_of_its_time_slice(last: str) -> None:
    class Value:
        """A value whose weak reference shows when nothing refers to it any more."""

    async def waits() -> None:
        await go_on.wait()

    async def mostly_quick(value: object = None, wait: bool = False) -> None:
        if wait:
            await waits()

    stage, go_on, kept = Stage({"quick": mostly_quick, "waits": waits}), asyncio.Event(), list[weakref.ref[Value]]()

    async def scene(stage: Stage) -> None:
        stage.runner.inline.time_slice.ends_at = time.monotonic() + 60
        made = [
            Claim(n, uuid4(), 1, 1, "default", 5, "task", "quick", {"value": Value(), "wait": False}, options=Value())
            for n in range(20)
        ]
        kept.extend(weakref.ref(value) for claim in made for value in (claim.options, claim.args["value"]))
        stage.runner.take(made, time.monotonic())
        stage.give(last, args={"value": None, "wait": True} if last == "quick" else {})
        del made
        await holds(lambda: len(stage.told) == 20 and len(stage.runner) == 1)
        gc.collect()
        assert [ref() for ref in kept] == [None] * 40
        go_on.set()
        await holds(stage.runner.is_idle)

    play(stage, scene)


async def takes_its_run(run: Run) -> None: ...


@pytest.mark.parametrize(("handler", "most"), [(quick, 6), (takes_its_run, 19)])
def test_an_inline_attempt_takes_few_function_calls(handler: Any, most: int) -> None:
    """There are 5 and 18 calls on any machine, or 26 and 43 through the executor. A time would vary."""
    stage, calls = Stage({"quick": handler}), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def scene(stage: Stage) -> None:
        stage.runner.inline.time_slice.ends_at = time.monotonic() + 60
        stage.give(*["quick"] * 1000)
        sys.setprofile(count)
        try:
            await stage.all_told(1000)
        finally:
            sys.setprofile(None)
        assert calls / 1000 < most

    play(stage, scene)
