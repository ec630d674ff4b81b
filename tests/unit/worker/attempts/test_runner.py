"""A runner makes attempts one after the other in one task: their order, its turns, and what it does at a stop."""

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


def test_claims_are_attempted_in_order_and_never_more_at_once_than_there_are_places() -> None:
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


def test_of_all_places_together_no_turn_is_longer_than_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert 10 <= most <= 2 * 10 + 10  # those of a turn, and one of each place, which finds that it has ended

    play(stage, scene)


def test_what_follows_an_attempt_in_the_same_turn_goes_by_a_handler_of_its_own() -> None:
    """The one of the attempt before is kept at hand, for tasks of that name and arguments of those names."""
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


def test_after_a_stop_nothing_starts_and_what_is_ahead_is_handed_back() -> None:
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


def test_thousands_that_wait_are_let_go_of_at_once() -> None:
    """As when all leases of a worker end together, after it was stopped for longer than that."""
    go = asyncio.Event()

    async def scene(stage: Stage) -> None:
        _, *others = stage.give("long", *["quick"] * 8001)
        await holds(lambda: len(stage.runner) == 1)
        del others[4000]  # it stays
        assert took(lambda: stage.runner.end([claim.key for claim in reversed(others)], EndReason.DEADLINE)) < 0.5
        assert stage.results() == [("quick", "released")] * 8000
        go.set()
        await stage.all_told(8002)
        assert stage.results()[8000:] == [("long", "succeeded"), ("quick", "succeeded")]

    play(Stage({"long": go.wait, "quick": quick}), scene)


@pytest.mark.parametrize(("concurrency", "ahead"), [(1, 1), (3, 10), (8, 2), (1, 30), (4, 30)])
def test_whoever_claims_is_told_in_each_turn_that_leaves_room_and_of_few_others(concurrency: int, ahead: int) -> None:
    """To ask for room costs as much as a tenth of an attempt, and nobody can claim before the loop goes round."""
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


def test_what_a_turn_has_done_is_settled_by_one_call_before_anything_is_waited_for() -> None:
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
def test_an_attempt_that_waits_keeps_no_claim_of_its_turn(last: str) -> None:
    class Value:
        """To be found when nobody has it any more."""

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
def test_an_attempt_that_needs_only_its_arguments_and_the_run_takes_few_calls(handler: Any, most: int) -> None:
    """Five and 18, or 26 and 43 by way of its executor, on any machine: a figure of time would be that of the hour."""
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
