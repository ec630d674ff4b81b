"""Plain functions ended while they run: by a timeout, a cancellation, a lost claim or the worker's stop."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from pgsched import Run
from pgsched.worker.attempts.attempt import EndReason
from tests.support.attempts.plain_functions import Long, give_all, python
from tests.support.executing import holds
from tests.support.stage import Stage, loop_turns, play


def test_a_timeout_ends_the_running_attempt_and_not_the_waiting_claims() -> None:
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


def test_a_timeout_is_for_each_attempt_and_not_for_all_together() -> None:
    stage = Stage({"t": lambda: time.sleep(0.05)})

    give_all(stage, *"tttttt", timeout=timedelta(seconds=0.25))  # less than all together take
    assert stage.results() == [("t", "succeeded")] * 6


@pytest.mark.parametrize(
    ("why", "result"), [(EndReason.CANCEL, "cancelled"), (EndReason.DEADLINE, "interrupted")], ids=str
)
def test_ending_the_running_attempt_does_not_end_the_waiting_claims(why: EndReason, result: str) -> None:
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


def test_cancelling_a_waiting_claim_does_not_end_the_running_attempt() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.beaten([], frozenset({claims[2].key}))
        assert stage.results() == [("t", "cancelled")]
        await loop_turns()
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
    """Run until the run is cancelled if `i` is 0, otherwise return at once."""
    if i == 0:
        run.log("waits")
        long.begun.set()
        assert run.cancelled.wait(10)
        assert run.own.control is not None
        assert run.own.control.stopping
        long.go.set()
    return "done"


@pytest.mark.parametrize(("why", "result"), [(EndReason.CANCEL, "cancelled"), (EndReason.LOST, None)], ids=str)
def test_a_handler_learns_from_its_run_that_it_must_stop(why: EndReason, result: str | None) -> None:
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


def test_an_attempt_that_its_handler_has_settled_is_not_ended() -> None:
    """The claim is gone by then, and a heartbeat may notice this while the handler goes on."""
    long = Long()

    def work(run: Run, i: int = -1) -> None:
        run.own.settling(True)
        long(i)

    stage = Stage({"t": work})
    python(stage).attach(stage.runner.attempt_of, "")

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.runner.beaten([claim.key], frozenset())
        await loop_turns()
        assert python(stage).abandoned == 0
        long.go.set()
        await stage.all_told(1)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")]


def test_a_lost_claim_overrides_a_timeout() -> None:
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
        await loop_turns()
        assert not waits.done()
        long.go.set()
        await waits

    play(stage, scene)
    assert long.seen == [0]
    assert stage.results()[3] == ("t", "succeeded")


def test_a_worker_that_waits_no_longer_interrupts_running_attempts() -> None:
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
        time.sleep(0.1)  # noqa: ASYNC251 - the attempt ends before the loop runs again
        await stage.all_told(3)
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert sorted(outcome.value for _, outcome in stage.told) == [1, 2, 3]


def test_the_first_reason_to_end_an_attempt_counts() -> None:
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
