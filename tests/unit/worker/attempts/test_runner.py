"""A runner makes attempts one after the other in one task, each as if it were alone."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import time
import weakref
from datetime import timedelta
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

from pgsched import Run, log
from pgsched.core.model import Claim, Result, Unreadable
from pgsched.worker.attempts import attempt, capacity, time_slice
from pgsched.worker.attempts.attempt import Ended
from pgsched.worker.attempts.prefetch import Pace
from tests.support.executing import holds
from tests.support.stage import Stage, play
from tests.support.timing import took

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="clean")


async def quick() -> None:
    pass


async def briefly() -> None:
    await asyncio.sleep(0)


async def busy() -> None:
    time.sleep(0.001)  # noqa: ASYNC251


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


def test_a_claim_whose_place_is_about_to_begin_takes_the_room_of_one() -> None:
    """Who asks in between would wait for the end of an attempt, though a place is free."""
    go = asyncio.Event()

    async def waits() -> None:
        await go.wait()

    stage = Stage({"waits": waits}, concurrency=3)

    async def scene(stage: Stage) -> None:
        stage.give("waits")
        stage.give("waits")
        assert (stage.runner.room(), stage.runner.capacity.busy) == (1, 2)
        await holds(lambda: len(stage.runner) == 2)
        assert stage.runner.room() == 1
        stage.give("waits")
        stage.give("waits")
        assert (stage.runner.room(), stage.runner.capacity.busy) == (0, 3)
        await holds(lambda: len(stage.runner) == 3)
        assert stage.runner.room() == 0
        go.set()
        await stage.all_told(4)

    play(stage, scene)


def test_a_worker_that_may_run_so_many_claims_no_more_though_their_places_have_not_begun() -> None:
    stage = Stage({"quick": quick}, concurrency=3)
    stage.runner.buffer.left = 2

    async def scene(stage: Stage) -> None:
        assert stage.runner.room() == 2
        stage.give("quick", "quick")
        assert stage.runner.room() <= 0
        await stage.all_told(2)

    play(stage, scene)


def test_what_a_handler_leaves_in_its_context_does_not_reach_the_next() -> None:
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


def test_a_timeout_that_is_over_before_the_handler_begins_reaches_no_other_attempt() -> None:
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


def test_a_place_is_as_new_after_its_attempt_was_cancelled() -> None:
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


def test_a_handler_that_swallows_its_cancellation_keeps_its_result_and_its_place_is_as_new() -> None:
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


def test_a_timeout_is_told_as_one() -> None:
    async def long() -> None:
        await asyncio.sleep(3600)

    stage = Stage({"long": long})

    async def scene(stage: Stage) -> None:
        stage.give("long", timeout=timedelta(milliseconds=20))
        await stage.all_told(1)

    play(stage, scene)
    assert [(o.result, o.error) for _, o in stage.told] == [(Result.TIMED_OUT, "timed out after 0.02 s")]


def test_a_handler_that_refuses_to_stop_is_left_behind_and_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_run_says_that_it_is_cancelled_before_its_handler_is_told() -> None:
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


def test_claims_ahead_are_not_parked_behind_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PARKED_S", 0.02)
    go = asyncio.Event()

    async def slow() -> None:
        await go.wait()

    stage = Stage({"slow": slow, "quick": quick})

    async def scene(stage: Stage) -> None:
        stage.give(*["quick"] * 50)
        await stage.all_told(50)
        assert stage.runner.room() > 1, "quick work is claimed ahead"
        stage.give("slow", "quick", "quick")
        stage.runner.unpark()
        assert len(stage.told) == 50, "not at once"
        await asyncio.sleep(0.03)
        stage.runner.unpark()
        assert len(stage.told) == 52
        assert stage.runner.room() == 0, "and nothing is claimed ahead until a place is free"
        go.set()
        await stage.all_told(53)

    play(stage, scene)
    assert [(n, str(o.result), o.error) for n, o in stage.told[50:52]] == [
        ("quick", "released", Ended.PARKED.value)
    ] * 2


def test_claims_ahead_are_handed_back_when_work_turns_out_slow_though_places_become_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity, "PARKED_S", 0.16)

    async def slow(seconds: float) -> None:
        await asyncio.sleep(seconds)

    stage = Stage({"slow": slow, "quick": quick}, concurrency=4)

    async def scene(stage: Stage) -> None:
        stage.give(*["quick"] * 500)
        await stage.all_told(500)
        assert stage.runner.room() > 40, "quick work is claimed ahead"
        stage.runner.unpark()
        waits = [0.15, 0.17, 0.19, 0.21, *[0.15] * 36]  # a place becomes free every 20 ms or so
        for wait in waits:
            stage.give("slow", args={"seconds": wait})
        await asyncio.sleep(0.2)
        stage.runner.unpark()
        assert {outcome.result for _, outcome in stage.told} == {Result.SUCCEEDED}, "it may be slow for a moment only"
        await asyncio.sleep(0.05)
        stage.runner.unpark()
        handed_back = [outcome for _, outcome in stage.told if outcome.result is Result.RELEASED]
        assert len(handed_back) >= 20, "what would have been next in seconds is for other workers"
        await stage.all_told(540)

    play(stage, scene)
    ended = [outcome for name, outcome in stage.told if name == "slow" and outcome.result is Result.SUCCEEDED]
    assert len(ended) >= 4


def test_one_handler_that_blocks_the_loop_has_nothing_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PARKED_S", 0.02)
    wanted_ahead = []

    def look() -> None:
        wanted_ahead.append(stage.runner.capacity.pace.prefetch)
        stage.runner.unpark()

    async def blocks() -> None:
        asyncio.get_running_loop().call_soon(look)
        time.sleep(0.1)  # noqa: ASYNC251

    stage = Stage({"quick": quick, "blocks": blocks}, concurrency=8)

    async def scene(stage: Stage) -> None:
        stage.give(*["quick"] * 3000)
        await stage.all_told(3000)
        stage.runner.unpark()
        stage.give("blocks", *["quick"] * 400)
        await stage.all_told(3401)
        assert len(wanted_ahead) == 1 and wanted_ahead[0] < 400

    play(stage, scene)
    assert {result for _, result in stage.results()} == {"succeeded"}


def test_a_claim_whose_place_is_about_to_begin_is_not_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PARKED_S", -1.0)
    stage = Stage({"quick": quick}, concurrency=2)

    async def scene(stage: Stage) -> None:
        stage.give("quick", "quick", "quick")
        stage.runner.unpark()
        await stage.all_told(3)

    play(stage, scene)
    assert stage.results() == [("quick", "released"), ("quick", "succeeded"), ("quick", "succeeded")]


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


def test_places_that_are_busy_do_not_make_the_others_claim_ahead() -> None:
    pace = Pace(50)
    for n in range(60):  # one place of fifty goes on, 50 ms a run
        pace.took(0.05, n * 0.05)
    assert pace.prefetch <= 6
    for n in range(1000):
        pace.took(0.0001, 3 + n * 0.0001)
    assert pace.prefetch > 500


def test_a_handler_that_cancels_its_place_later_costs_no_place() -> None:
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
    assert Ended.SHUTDOWN.value in (stage.told[0][1].error or "")


def test_thousands_that_wait_are_let_go_of_at_once() -> None:
    """As when all leases of a worker end together, after it was stopped for longer than that."""
    go = asyncio.Event()

    async def scene(stage: Stage) -> None:
        _, *others = stage.give("long", *["quick"] * 8001)
        await holds(lambda: len(stage.runner) == 1)
        del others[4000]  # it stays
        assert took(lambda: stage.runner.end([claim.key for claim in reversed(others)], Ended.DEADLINE)) < 0.5
        assert stage.results() == [("quick", "released")] * 8000
        go.set()
        await stage.all_told(8002)
        assert stage.results()[8000:] == [("long", "succeeded"), ("quick", "succeeded")]

    play(Stage({"long": go.wait, "quick": quick}), scene)


def test_what_is_said_of_a_worker_that_has_had_its_last_run_is_of_no_attempt() -> None:
    """Log lines would name the run that the place had before."""
    said: list[Any] = []

    async def scene() -> None:
        async def handler() -> None:
            said.append(log.ATTEMPT.get().task)

        stage = Stage({"t": handler})
        stage.runner.buffer.left, stage.runner.buffer.on_last = 2, lambda: said.append(log.ATTEMPT.get())
        stage.give("t", "t")
        await asyncio.wait(stage.runner.tasks.all, timeout=10)

    asyncio.run(scene())
    assert said == ["t", None, "t"]


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


def test_work_that_has_just_begun_is_claimed_ahead_as_far_as_it_would_get_at_that_pace() -> None:
    pace = Pace(8)
    for ended in range(1, 9):
        pace.took(0.00002, 100.0 + ended * 0.0002)
    assert 350 <= pace.prefetch <= 400, "fifty times what ended within two milliseconds"
    pace.took(0.00002, 100.0202, 200)
    assert pace.prefetch == pytest.approx(5 * 208, rel=0.01)
    pace.took(0.00002, 100.11, 10)  # and by what it did, from then on
    assert pace.prefetch == 2 * 208


def test_while_there_is_nothing_to_do_nothing_is_said_of_how_quick_it_is() -> None:
    pace = Pace(8)
    pace.took(0.00002, 100.0, 8)
    pace.took(0.00002, 100.004, 8)
    pace.waited(100.004, 100.034)  # for the answer to a claim
    pace.took(0.00002, 100.038, 104)
    assert pace.prefetch == pytest.approx(120 * 0.1 / 0.008, rel=0.01)
    for n in range(60):  # one each 50 ms: nothing that says what would end in a tenth of a second of work
        pace.waited(101.0 + n * 0.05, 101.05 + n * 0.05)
        pace.took(0.00002, 101.05 + n * 0.05, 1)
    assert pace.prefetch <= 2 * 1.05 / 0.05
    pace.waited(100.0, 200.0)  # so long that what ended before is no measure
    pace.took(0.00002, 200.0, 1)
    assert pace.prefetch == 50


def test_waiting_for_claims_does_not_make_those_that_come_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(Pace, "waited", lambda _, since, now: waited.append(now - since))

    async def lasts() -> None:
        await asyncio.sleep(0.05)

    stage = Stage({"quick": quick, "lasts": lasts}, concurrency=2)

    async def scene(stage: Stage) -> None:
        stage.give("quick")
        await stage.all_told(1)
        began = time.monotonic()
        await asyncio.sleep(0.03)
        stage.give("lasts")
        assert waited[1:] == [pytest.approx(time.monotonic() - began, abs=0.02)]
        await holds(lambda: len(stage.runner) == 1)
        stage.give("quick")
        assert len(waited) == 2, "a place is at work"
        await stage.all_told(3)

    play(stage, scene)


def test_many_ends_that_are_told_of_at_once_weigh_as_much_as_one_by_one() -> None:
    once, each = Pace(8), Pace(8)
    for pace in (once, each):
        pace.took(0.5, 10.0)
    once.took(0.001, 10.05, 40)
    for _ in range(40):
        each.took(0.001, 10.05)
    assert once._average_s == pytest.approx(each._average_s) and once._ended == each._ended


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
