"""Metrics cost little: a few calls count a batch of any size, and only few attempts are timed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from pgsched.core.model import Claim, Outcome, Result, Settlement
from pgsched.execute.base import Executor
from pgsched.telemetry.metrics import Meter
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.leases import Leases
from pgsched.worker.observers import metrics
from pgsched.worker.observers.metrics import BURST, WorkerMeter
from pgsched.worker.process_endpoint import sum_samples

DONE = Outcome(Result.SUCCEEDED)


class Nothing(Executor):
    """An executor whose attempts do nothing."""

    abandoned = 0

    async def close(self) -> None: ...

    async def execute(self, claim: Claim) -> Outcome:
        return DONE


class Counted(Meter):
    """A meter that counts its calls."""

    calls = 0

    def count(self, *given: Any, **named: Any) -> None:
        self.calls += 1
        super().count(*given, **named)

    def observe(self, *given: Any, **named: Any) -> None:
        self.calls += 1
        super().observe(*given, **named)


def claims(n: int, tasks: int = 1) -> list[Claim]:
    return [Claim(i, uuid4(), 1, 1, "default", 5, "task", f"t{i % tasks}", None) for i in range(n)]


def settled(counted: WorkerMeter, made: list[Claim]) -> None:
    """Settle all these claims as succeeded."""
    counted.settled([Settlement.of(claim, DONE) for claim in made], ["succeeded"] * len(made))


def number(meter: Meter, name: str) -> float:
    """Return the sum over all label values; for a histogram, the sum of its counts."""
    return sum(
        sum(value[0]) if isinstance(value, list) else value for found, _, value in meter.snapshot() if found == name
    )


def by_task(meter: Meter, name: str) -> dict[str, float]:
    return {labels[2]: sum(value[0]) for found, labels, value in meter.snapshot() if found == name}


async def work(counted: WorkerMeter, made: list[Claim]) -> None:
    """Make one attempt of each claim."""
    left, ended = set(made), asyncio.Event()

    def settle(claims: Sequence[Claim], outcome: Outcome) -> None:
        assert outcome is DONE
        for claim in claims:
            left.remove(claim)
        if not left:
            ended.set()

    runner = AttemptRunner({"task": Nothing()}, 4, Leases(30), settle, lambda: None, print, events=counted)
    runner.take(made, time.monotonic())
    await asyncio.wait_for(ended.wait(), 60)


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_batch_is_counted_with_calls_for_each_task_and_not_for_each_run(tasks: int) -> None:
    meter = Counted()
    settled(WorkerMeter(meter), claims(999, tasks))
    assert meter.calls == 1 + 2 * tasks
    assert number(meter, "pgsched_attempts_total") == number(meter, "pgsched_runs_finished_total") == 999


def test_the_times_of_a_few_attempts_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, made = WorkerMeter(Meter()), claims(500)
    asyncio.run(work(counted, made))
    assert len(counted.attempt_times) == BURST
    assert not counted.wants_times
    settled(counted, made[:300])
    assert number(counted.meter, "pgsched_attempt_duration_seconds") == 300
    assert counted.wants_times
    monkeypatch.setattr(metrics, "STRETCH_S", 0.0)
    counted._stretch_ends = 0.0
    settled(counted, made[300:])  # these ended before, and no attempt was timed since
    assert number(counted.meter, "pgsched_attempt_duration_seconds") == 500


def test_an_attempt_that_is_timed_before_it_is_settled_counts_once() -> None:
    counted, made = WorkerMeter(Meter()), claims(20)
    asyncio.run(work(counted, made))
    settled(counted, made[:5])
    counted._stretch_ends = 0.0
    settled(counted, made[5:])
    assert number(counted.meter, "pgsched_attempt_duration_seconds") == 20


def test_a_timed_attempt_stands_only_for_attempts_of_the_same_task() -> None:
    """The time of one late scheduled run must not count for other tasks that were settled with it."""
    counted, made = WorkerMeter(Meter()), claims(200, 2)
    asyncio.run(work(counted, made[:1]))
    settled(counted, made)
    assert by_task(counted.meter, "pgsched_attempt_duration_seconds") == {"t0": 100}
    counted._stretch_ends = 0.0
    asyncio.run(work(counted, made[1:2]))
    settled(counted, claims(2, 2))
    found = by_task(counted.meter, "pgsched_attempt_duration_seconds")
    assert found == {"t0": 101, "t1": 1}, "those that were never timed are not made up for later"


def test_a_time_stands_for_no_attempt_that_ends_much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad time of a rare task must not be counted again and again while other tasks are timed."""
    counted, made = WorkerMeter(Meter()), claims(1)
    asyncio.run(work(counted, made))
    settled(counted, made)
    counted._stretch_ends = 0.0
    settled(counted, made)
    assert by_task(counted.meter, "pgsched_attempt_duration_seconds") == {"t0": 2}, "its outcome came later"
    clock = time.monotonic
    monkeypatch.setattr(metrics.time, "monotonic", lambda: clock() + 2 * metrics.KEPT_S)
    settled(counted, made)
    assert by_task(counted.meter, "pgsched_attempt_duration_seconds") == {"t0": 2}


def test_a_late_slot_is_counted_with_its_lateness() -> None:
    counted, due = WorkerMeter(Meter()), datetime.now(UTC) - timedelta(minutes=5)
    counted._offset_s = time.time() - time.monotonic()
    made = [claims(1)[0]._replace(job_id=1, scheduled_at=due, available_at=f"{due:%Y-%m-%d %H:%M:%S.%f+00}")]
    asyncio.run(work(counted, made))
    settled(counted, made)
    (late,) = [value for name, _, value in counted.meter.snapshot() if name == "pgsched_lateness_seconds"]
    assert (sum(late[0]), round(late[1], -1)) == (1, 300)


def test_a_run_that_its_own_transaction_has_settled_counts_as_ended() -> None:
    meter, made = Meter(), claims(2)
    batch = [Settlement.of(claim, outcome) for claim, outcome in zip(made, (DONE, Outcome(Result.FAILED)), strict=True)]
    WorkerMeter(meter).settled(batch, ["repeated", "repeated"])
    ended = {labels[3]: n for name, labels, n in meter.snapshot() if name == "pgsched_runs_finished_total" and n}
    assert ended == {"succeeded": 1}, "what became of a failure is not known from this"


def test_a_batch_of_mixed_outcomes_is_counted_by_the_result_of_each() -> None:
    meter, made = Meter(), claims(4)
    outcomes = [DONE, Outcome(Result.FAILED), DONE, Outcome(Result.FAILED, retry=False)]
    batch = [Settlement.of(claim, outcome) for claim, outcome in zip(made, outcomes, strict=True)]
    WorkerMeter(meter).settled(batch, ["succeeded", "scheduled", "lost", "dead"])
    attempts = {
        labels[3]: value for name, labels, value in meter.snapshot() if name == "pgsched_attempts_total" and value
    }
    assert attempts == {"succeeded": 1, "failed": 2, "lost": 1}
    ended = {labels[3]: n for name, labels, n in meter.snapshot() if name == "pgsched_runs_finished_total" and n}
    assert ended == {"succeeded": 1, "dead": 1}
    WorkerMeter(meter).settled([], [])


def test_the_worst_lag_is_kept_although_several_workers_of_a_process_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LAG_STRETCH_S", 1.0)
    monkeypatch.setattr(metrics, "LAG_EVERY_S", 0.01)
    observer = WorkerMeter(Meter())

    async def scene() -> None:
        watching = [asyncio.create_task(observer.watch()) for _ in range(2)]
        observer.worst_lags_s = 0.0, 5.0
        while observer.worst_lags_s[0] == 0.0:  # noqa: ASYNC110 - until the stretch ends
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        assert observer.worst_lags_s[0] == 5.0
        for one in watching:
            one.cancel()
        await asyncio.wait(watching)

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_a_process_drains_or_not_however_many_workers_it_has() -> None:
    each = [("pgsched_worker_slots", (), 4), ("pgsched_worker_draining", (), 1)]
    sums = [("pgsched_worker_slots", (), 8), ("pgsched_worker_draining", (), 1)]
    assert list(sum_samples([lambda: each, lambda: each])) == sums
