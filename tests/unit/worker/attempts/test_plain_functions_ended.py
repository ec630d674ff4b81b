"""Plain functions that are ended while they run: by a limit, a cancellation, a loss or the worker's stop."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from pgsched import Run
from pgsched.worker.attempts.attempt import EndReason
from tests.support.attempts.plain_functions import Long, give_all, python
from tests.support.executing import holds
from tests.support.stage import Stage, play


def test_a_time_limit_ends_the_one_that_is_being_made() -> None:
    long = Long()
    stage = long.stage()
    limit = timedelta(seconds=0.05)

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage, timeout=limit)
        await stage.all_told(4)
        assert python(stage).abandoned == 1
        long.go.set()
        await holds(lambda: python(stage).abandoned == 0)
        assert len(stage.told) == 4, "what a thread comes to that was left behind counts no more"

    play(stage, scene)
    (_, first), *others = stage.told
    assert (str(first.result), first.error) == ("timed_out", "timed out after 0.05 s")
    assert [outcome.value for _, outcome in others] == [1, 2, 3]


def test_a_time_limit_is_for_each_and_not_for_all() -> None:
    stage = Stage({"t": lambda: time.sleep(0.03)})

    give_all(stage, *"tttttt", timeout=timedelta(seconds=0.1))
    assert stage.results() == [("t", "succeeded")] * 6


@pytest.mark.parametrize(
    ("why", "result"), [(EndReason.CANCEL, "cancelled"), (EndReason.DEADLINE, "interrupted")], ids=str
)
def test_the_one_that_is_being_made_is_ended_and_the_others_are_not(why: EndReason, result: str) -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.end([claims[0].key], why)
        await stage.all_told(4)
        long.go.set()

    play(stage, scene)
    assert [(str(outcome.result), outcome.value) for _, outcome in stage.told] == [
        (result, None), *[("succeeded", i) for i in (1, 2, 3)]
    ]  # fmt: skip


def test_a_cancelled_claim_that_was_not_begun_is_let_go_of_and_what_is_being_made_goes_on() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.beaten([], frozenset({claims[2].key}))
        assert stage.results() == [("t", "cancelled")]
        await asyncio.sleep(0.05)
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)
    assert long.seen == [0, 1, 3]
    assert stage.results()[1:] == [("t", "succeeded")] * 3


def test_a_lost_claim_is_not_settled() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.beaten([claims[0].key, claims[3].key], frozenset())
        await stage.all_told(2)
        long.go.set()
        await holds(lambda: python(stage).abandoned == 0)

    play(stage, scene)
    assert [outcome.value for _, outcome in stage.told] == [1, 2]
    assert stage.runner.leases.count == 2, "those that were settled are let go of when that is written"


def heeds(run: Run, long: Long, i: int) -> str:
    """Lasts until it is told to stop; the others do nothing."""
    if i == 0:
        run.log("waits")
        long.begun.set()
        assert run.cancelled.wait(10)
        assert run.own.control is not None
        assert run.own.control.stopping
        long.go.set()
    return "done"


@pytest.mark.parametrize(("why", "result"), [(EndReason.CANCEL, "cancelled"), (EndReason.LOST, None)], ids=str)
def test_a_handler_hears_through_its_run_that_it_is_to_stop(why: EndReason, result: str | None) -> None:
    long = Long()

    def work(run: Run, i: int = -1) -> str:
        return heeds(run, long, i)

    stage = Stage({"t": work})
    python(stage).attach(stage.runner.attempt_of, "")

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage, grace=timedelta(seconds=10))
        stage.runner.end([claims[0].key], why)
        await holds(long.go.is_set)
        await stage.all_told(4 if result else 3)
        await holds(stage.runner.is_idle)
        assert python(stage).abandoned == 0

    play(stage, scene)
    found = [(str(outcome.result), outcome.log_tail) for _, outcome in stage.told]
    ended = [(result, "waits\n")] if result else []
    assert found == [*ended, *[("succeeded", None)] * 3]


def test_a_handler_that_asks_for_more_time_gets_it() -> None:
    long = Long()

    def work(run: Run, i: int = -1) -> None:
        run.extend(10)
        long(i)

    stage = Stage({"t": work})
    python(stage).attach(stage.runner.attempt_of, "")

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage, timeout=timedelta(seconds=0.05))
        await asyncio.sleep(0.15)
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")] * 4


def test_what_its_handler_has_settled_is_no_longer_ended() -> None:
    """Its claim is gone by then, which a heartbeat may notice while the handler goes on."""
    long = Long()

    def work(run: Run, i: int = -1) -> None:
        run.own.settling(True)
        long(i)

    stage = Stage({"t": work})
    python(stage).attach(stage.runner.attempt_of, "")

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.runner.beaten([claim.key], frozenset())
        await asyncio.sleep(0.05)
        assert python(stage).abandoned == 0
        long.go.set()
        await stage.all_told(1)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")]


def test_a_loss_overrides_a_time_limit() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.runner.end([claim.key], EndReason.TIMEOUT)
        stage.runner.end([claim.key], EndReason.LOST)
        await holds(stage.runner.is_idle)
        long.go.set()

    play(stage, scene)
    assert stage.told == []


def test_a_worker_that_stops_begins_nothing_more() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        stage.runner.stop()
        stage.runner.hand_back()
        assert stage.results() == [("t", "released")] * 3
        waits = asyncio.ensure_future(stage.runner.idle(lambda: False))
        await asyncio.sleep(0.02)
        assert not waits.done()
        long.go.set()
        await waits

    play(stage, scene)
    assert long.seen == [0]
    assert stage.results()[3] == ("t", "succeeded")


def test_one_that_waits_no_longer_ends_what_is_being_made() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage, 1)
        stage.runner.stop()
        stage.runner.end_all(EndReason.SHUTDOWN)
        await stage.runner.idle(lambda: False)
        long.go.set()

    play(stage, scene)
    assert stage.results() == [("t", "interrupted")]


def test_a_claim_that_is_lost_just_as_its_attempt_ends_is_not_settled() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.end([claims[0].key], EndReason.LOST)
        assert len(stage.runner) == 1
        long.go.set()
        time.sleep(0.1)  # noqa: ASYNC251 - the place hears of the end when it is over
        await stage.all_told(3)
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert sorted(outcome.value for _, outcome in stage.told) == [1, 2, 3]


def test_the_first_reason_counts() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.runner.end([claim.key], EndReason.CANCEL)
        stage.runner.end([claim.key], EndReason.DEADLINE)
        await stage.all_told(1)
        long.go.set()

    play(stage, scene)
    assert stage.results() == [("t", "cancelled")]
