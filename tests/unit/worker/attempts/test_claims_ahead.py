"""Claims ahead of free places: how many a worker makes, and when it hands them back."""

from __future__ import annotations

import asyncio
import time

import pytest

from pgsched.core.model import Result
from pgsched.worker.attempts import capacity
from pgsched.worker.attempts.attempt import EndReason
from pgsched.worker.attempts.prefetch import Pace
from tests.support.executing import holds
from tests.support.stage import Stage, play, quick


def test_a_claim_takes_a_place_before_its_attempt_begins() -> None:
    """Otherwise a claimer that asks in between would wait for the end of an attempt, although a place is free."""
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


def test_a_worker_with_a_limit_of_runs_counts_claims_that_have_not_begun() -> None:
    stage = Stage({"quick": quick}, concurrency=3)
    stage.runner.buffer.runs_left = 2

    async def scene(stage: Stage) -> None:
        assert stage.runner.room() == 2
        stage.give("quick", "quick")
        assert stage.runner.room() <= 0
        await stage.all_told(2)

    play(stage, scene)


def test_claims_ahead_that_wait_behind_slow_runs_are_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()

    async def slow() -> None:
        await go.wait()

    stage = Stage({"slow": slow, "quick": quick})

    async def scene(stage: Stage) -> None:
        stage.give(*["quick"] * 50)
        await stage.all_told(50)
        assert stage.runner.room() > 1, "quick work is claimed ahead"
        stage.give("slow", "quick", "quick")
        monkeypatch.setattr(capacity, "PARKED_S", 3600.0)
        stage.runner.unpark()
        assert len(stage.told) == 50, "not at once"
        monkeypatch.setattr(capacity, "PARKED_S", 0.0)
        stage.runner.unpark()
        assert len(stage.told) == 52
        assert stage.runner.room() == 0, "and nothing is claimed ahead until a place is free"
        go.set()
        await stage.all_told(53)

    play(stage, scene)
    assert [(n, str(o.result), o.error) for n, o in stage.told[50:52]] == [
        ("quick", "released", EndReason.PARKED.value)
    ] * 2


def test_claims_ahead_are_handed_back_when_runs_stay_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity, "PARKED_S", 0.16)

    async def slow(seconds: float) -> None:
        await asyncio.sleep(seconds)

    stage = Stage({"slow": slow, "quick": quick}, concurrency=4)

    async def scene(stage: Stage) -> None:
        stage.give(*["quick"] * 500)
        await stage.all_told(500)
        assert stage.runner.room() > 8, "quick work is claimed ahead"
        stage.runner.unpark()
        waits = [0.15, 0.17, 0.19, 0.21, *[0.15] * 36]  # a place becomes free about every 20 ms
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


def test_one_handler_that_blocks_the_loop_causes_no_hand_back(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_claim_that_has_its_place_is_not_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PARKED_S", -1.0)
    stage = Stage({"quick": quick}, concurrency=2)

    async def scene(stage: Stage) -> None:
        stage.give("quick", "quick", "quick")
        stage.runner.unpark()
        await stage.all_told(3)

    play(stage, scene)
    assert stage.results() == [("quick", "released"), ("quick", "succeeded"), ("quick", "succeeded")]


def test_one_busy_place_of_many_causes_few_claims_ahead() -> None:
    pace = Pace(50)
    for n in range(60):  # one of fifty places is at work, and each run takes 50 ms
        pace.took(0.05, n * 0.05)
    assert pace.prefetch <= 6
    for n in range(1000):
        pace.took(0.0001, 3 + n * 0.0001)
    assert pace.prefetch > 500


def test_work_that_has_just_begun_is_claimed_ahead_at_its_pace_so_far() -> None:
    pace = Pace(8)
    for ended in range(1, 9):
        pace.took(0.00002, 100.0 + ended * 0.0002)
    assert 350 <= pace.prefetch <= 400, "fifty times what ended within two milliseconds"
    pace.took(0.00002, 100.0202, 200)
    assert pace.prefetch == pytest.approx(5 * 208, rel=0.01)
    pace.took(0.00002, 100.11, 10)  # from then on: twice the runs that ended in the last window
    assert pace.prefetch == 2 * 208


def test_idle_time_is_left_out_of_the_pace() -> None:
    pace = Pace(8)
    pace.took(0.00002, 100.0, 8)
    pace.took(0.00002, 100.004, 8)
    pace.waited(100.004, 100.034)  # the wait for the answer to a claim
    pace.took(0.00002, 100.038, 104)
    assert pace.prefetch == pytest.approx(120 * 0.1 / 0.008, rel=0.01)
    for n in range(60):  # one run every 50 ms shows how little work there is, not how fast the worker is
        pace.waited(101.0 + n * 0.05, 101.05 + n * 0.05)
        pace.took(0.00002, 101.05 + n * 0.05, 1)
    assert pace.prefetch <= 2 * 1.05 / 0.05
    pace.waited(100.0, 200.0)  # after so long a wait, the runs that ended before no longer count
    pace.took(0.00002, 200.0, 1)
    assert pace.prefetch == 50


def test_only_time_without_a_busy_place_counts_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(Pace, "waited", lambda _, since, now: waited.append(now - since))

    go = asyncio.Event()

    async def lasts() -> None:
        await go.wait()

    stage = Stage({"quick": quick, "lasts": lasts}, concurrency=2)

    async def scene(stage: Stage) -> None:
        began = time.monotonic()
        stage.give("quick")
        await stage.all_told(1)
        idle_since = time.monotonic()  # or shortly before
        await asyncio.sleep(0.03)
        given_at = time.monotonic()
        stage.give("lasts")
        assert given_at - idle_since <= waited[1] <= time.monotonic() - began
        await holds(lambda: len(stage.runner) == 1)
        stage.give("quick")
        assert len(waited) == 2, "a place is at work"
        go.set()
        await stage.all_told(3)

    play(stage, scene)


def test_many_ends_noted_at_once_weigh_as_much_as_one_by_one() -> None:
    once, each = Pace(8), Pace(8)
    for pace in (once, each):
        pace.took(0.5, 10.0)
    once.took(0.001, 10.05, 40)
    for _ in range(40):
        each.took(0.001, 10.05)
    assert once._average_s == pytest.approx(each._average_s) and once._ended == each._ended
