"""Listeners of jobs' attempts: told of each begin and end, and unable to do any harm."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from pgsched.core.model import Claim, Outcome, Result, Settlement
from pgsched.telemetry.metrics import Meter
from pgsched.worker.attempts.attempt import EndReason
from pgsched.worker.observers import job_events
from pgsched.worker.observers.events import NO_EVENTS
from pgsched.worker.observers.job_events import JobEvents, ToldExecutor
from pgsched.worker.observers.metrics import WorkerMeter
from tests.support.stage import Stage, play, quick, staged

SUCCESS, FAILURE = Outcome(Result.SUCCEEDED), Outcome(Result.FAILED, error="no")


class Listener:
    """A listener that records what it is told, and raises if it is told to."""

    def __init__(self, wanted: bool = True, raises: bool = False) -> None:
        self.wanted, self.raises = wanted, raises
        self.told: list[tuple[int, str]] = []
        self.closed = 0

    def wants(self, claim: Claim) -> bool:
        return self.wanted

    def begun(self, claim: Claim) -> None:
        self._note(claim, "begun")

    def ended(self, claim: Claim, outcome: Outcome, state: str) -> None:
        self._note(claim, state)

    def close(self) -> None:
        self.closed += 1
        if self.raises:
            raise RuntimeError

    def _note(self, claim: Claim, what: str) -> None:
        self.told.append((claim.id, what))
        if self.raises:
            raise RuntimeError("a bug of the listener")


class ListenerOfJob(Listener):
    """A listener that wants the runs of job 2."""

    def wants(self, claim: Claim) -> bool:
        return claim.job_id == 2


class Inline:
    """What a runner has of inline attempts, reduced to what is wrapped."""

    looks_at_jobs = False

    def handler_of(self, claim: Claim) -> str:
        return "handler"


class Runner:
    """A runner, reduced to what is wrapped."""

    def __init__(self, executor: Any) -> None:
        self.inline: Any = Inline()
        self.drivers: dict[str, Any] = {"task": executor}


class Executor:
    """An executor that succeeds."""

    abandoned = 2

    async def execute(self, claim: Claim) -> Outcome:
        return SUCCESS

    async def close(self) -> None:
        pass


def claim(number: int = 1, job: int | None = 3, attempt: int = 1) -> Claim:
    return Claim(number, uuid4(), attempt, 3, "default", 5, "task", "t", {}, job_id=job)


def events(*listeners: Listener) -> tuple[JobEvents, Runner]:
    made, runner = JobEvents(NO_EVENTS, listeners), Runner(Executor())
    made.attach(runner)  # type: ignore[arg-type]
    return made, runner


def settle(made: JobEvents, one: Claim, outcome: Outcome, verdict: str) -> None:
    made.settled([Settlement.of(one, outcome)], [verdict])


@pytest.mark.parametrize(
    ("outcome", "verdict", "state"),
    [
        (SUCCESS, "succeeded", "succeeded"), (FAILURE, "dead", "dead"), (FAILURE, "scheduled", "scheduled"),
        (SUCCESS, "repeated", "succeeded"), (FAILURE, "repeated", "scheduled"),
        (Outcome(Result.FAILED, retry=False), "repeated", "dead"), (FAILURE, "cancelled", "cancelled"),
    ],
)  # fmt: skip
def test_a_listener_hears_of_the_end_once(outcome: Outcome, verdict: str, state: str) -> None:
    listener, one = Listener(), claim()
    made, _ = events(listener)
    made.claimed([one])
    settle(made, one, outcome, verdict)
    settle(made, one, outcome, verdict)
    assert listener.told == [(1, state)]


def test_runs_without_a_job_and_claims_that_nobody_wants_are_not_told_of() -> None:
    listener, other = Listener(), Listener(wanted=False)
    made, runner = events(listener, other)
    made.claimed([claim(job=None)])
    assert isinstance(runner.inline, Inline)
    assert isinstance(runner.drivers["task"], Executor), "nothing is wrapped for them"
    assert not runner.inline.looks_at_jobs, "no attempt costs a look at its claim"
    one = claim()
    made.claimed([one])
    settle(made, one, SUCCESS, "succeeded")
    assert (len(listener.told), other.told) == (1, [])


@pytest.mark.parametrize("verdict", ["lost", None])
def test_a_claim_that_is_lost_is_told_of_no_more(verdict: str | None) -> None:
    listener, one = Listener(), claim()
    made, _ = events(listener)
    made.claimed([one])
    if verdict is None:
        made.ending(one, EndReason.LOST)
        verdict = "succeeded"
    settle(made, one, SUCCESS, verdict)
    assert listener.told == []


def test_the_begin_is_told_where_the_executor_is_called() -> None:
    listener, one, plain = Listener(), claim(), claim(2, job=None)
    made, runner = events(listener)
    made.claimed([one, plain])
    assert listener.told == []
    assert (runner.inline.handler_of(one), runner.inline.handler_of(plain)) == (None, "handler")
    driver = runner.drivers["task"]
    assert isinstance(driver, ToldExecutor)
    assert asyncio.run(driver.execute(one)) is SUCCESS
    assert asyncio.run(driver.execute(plain)) is SUCCESS
    assert (listener.told, driver.abandoned) == ([(1, "begun")], 2)


def test_one_run_of_a_task_is_told_of_among_others_that_are_not() -> None:
    stage = staged({"quick": quick}, at_once=True)
    listener = ListenerOfJob()
    made = JobEvents(NO_EVENTS, [listener])
    made.attach(stage.runner)
    stage.runner.events = made

    async def scene(stage: Stage) -> None:
        for job_id in (None, 1, 2, None, 2, 1):
            stage.give("quick", job_id=job_id)
        await stage.all_told(6)

    play(stage, scene)
    assert listener.told == [(3, "begun"), (5, "begun")]


def test_times_are_wanted_where_the_observer_inside_wants_them() -> None:
    assert not job_events.job_events(NO_EVENTS, []).wants_times
    meter = WorkerMeter(Meter())
    made = job_events.job_events(meter, [])
    assert made.wants_times
    meter.wants_times = False
    assert not made.wants_times


def test_an_error_of_a_listener_goes_no_further() -> None:
    bad, good, one = Listener(raises=True), Listener(), claim()
    made, _ = events(bad, good)
    made.claimed([one])
    made.begins(one)
    settle(made, one, SUCCESS, "succeeded")
    assert good.told == bad.told == [(1, "begun"), (1, "succeeded")]


def test_without_that_guard_it_would_end_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_events, "guarded", lambda call: call())
    one = claim()
    made, _ = events(Listener(raises=True))
    made.claimed([one])
    with pytest.raises(RuntimeError):
        settle(made, one, SUCCESS, "succeeded")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_events, "MOST_HELD", 3)
    listener = Listener()
    made, _ = events(listener)
    claims = [claim(number) for number in range(5)]
    made.claimed(claims)
    for one in claims:
        settle(made, one, SUCCESS, "succeeded")
    assert [number for number, _ in listener.told] == [2, 3, 4]


def test_listeners_are_closed_with_the_worker() -> None:
    bad, good = Listener(raises=True), Listener()
    made, _ = events(bad, good)

    async def watch() -> None:
        task = asyncio.create_task(made.watch())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watch())
    assert (bad.closed, good.closed) == (1, 1)
