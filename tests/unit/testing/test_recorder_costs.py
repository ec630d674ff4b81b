"""The cost of a recorded run does not grow with the number of runs that there are already."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pgsched import App, sliding
from pgsched.testing import Recorder, inline, record
from tests.support.timing import count_calls

FEW, MANY = 60, 240


def enqueue_one_by_one(recorder: Recorder, task: Any, count: int) -> None:
    for n in range(count):
        task.enqueue(n)


def enqueue_many(recorder: Recorder, task: Any, count: int) -> None:
    task.enqueue_many([[n] for n in range(count)])


def find_by_key(recorder: Recorder, task: Any, count: int) -> None:
    for n in range(count):
        for _ in range(2):
            task.options(unique_key=str(n), unique_scope=sliding(60), on_conflict="replace").enqueue(n)


def wait_in_a_chain(recorder: Recorder, task: Any, count: int) -> None:
    run = task.enqueue(0)
    for n in range(count):
        run = task.options(after=[run]).enqueue(n)
    recorder.drain()


def cancel_a_chain(recorder: Recorder, task: Any, count: int) -> None:
    first = run = task.enqueue(0)
    for n in range(count):
        run = task.options(after=[run]).enqueue(n)
    first.cancel()
    assert not recorder.drain()


def drain(recorder: Recorder, task: Any, count: int) -> None:
    for n in range(count):
        task.options(delay=n % 3).enqueue(n)
    assert len(recorder.drain(scheduled=True)) == count


def use_handles(recorder: Recorder, task: Any, count: int) -> None:
    runs = [task.enqueue(n) for n in range(count)]
    for run in runs:
        run.update(priority=1)
        run.cancel()
        run.retry()
    recorder.drain()
    for run in runs:
        assert run.result() is None


def travel(recorder: Recorder, task: Any, count: int) -> None:
    recorder.travel(timedelta(minutes=count))


def in_a_session(recorder: Recorder, task: Any, count: int) -> None:
    with Session(sa.create_engine("sqlite://")) as session:
        for n in range(count):
            task.options(unique_key=str(n), connection=session).enqueue(n)
        session.commit()


def rolled_back(recorder: Recorder, task: Any, count: int) -> None:
    with Session(sa.create_engine("sqlite://")) as session:
        for n in range(count):
            task.options(unique_key=str(n), idempotency_key=str(n), connection=session).enqueue(n)
        session.rollback()
    assert not recorder.runs


INLINE = [enqueue_one_by_one, enqueue_many, find_by_key, wait_in_a_chain, travel, in_a_session, rolled_back]
RECORDED = [*INLINE, cancel_a_chain, drain, use_handles]


@pytest.mark.parametrize(
    ("mode", "work"),
    [
        *[pytest.param(record, work, id=f"record-{work.__name__}") for work in RECORDED],
        *[pytest.param(inline, work, id=f"inline-{work.__name__}") for work in INLINE],
    ],
)
def test_four_times_as_many_runs_cost_about_four_times_as_much(
    mode: Any, work: Callable[[Recorder, Any, int], None]
) -> None:
    def cost(count: int) -> int:
        app = App("shop", dsn="host=127.0.0.1 port=1")
        task = app.job(schedule="@every 60s", args=[1])(app.task(name="t")(lambda n: None))
        with mode(app) as recorder:
            return count_calls(lambda: work(recorder, task, count))

    cost(1)  # what is imported and kept at the first use
    few, many = cost(FEW), cost(MANY)
    assert many < 5 * few, f"{few} calls for {FEW} runs, {many} for {MANY}"
