"""The decision that jobs of one shape share equals the decision for each job alone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import pytest

from pgsched.core.planning import plan, shared_plan
from pgsched.core.planning.catchup import decide
from pgsched.core.planning.job_schedule import job_schedule
from pgsched.core.planning.plan import catch_up_policy, decide_job, plan_on_time
from pgsched.core.planning.shared_plan import NOTHING, Shape
from pgsched.core.planning.slot_intervals import add_intervals
from pgsched.core.schedule import calendar
from pgsched.core.schedule.calendar import read_rows
from tests.support.simulation.simulate import BASE

NOW = datetime(2026, 11, 1, 6, 30, 0, 250_000, tzinfo=UTC)
ANCHOR = NOW - timedelta(hours=5, microseconds=250_007)
SCHEDULES = ["* * * * *", "*/20 * * * *", "0 2 * * *", "30 1 * * *", "*/7 * * * * *", "0 0 29 2 *", "@every 95s"]


def terms(**columns: Any) -> dict[str, Any]:
    return BASE | {"now": NOW, "anchor_at": ANCHOR, "timezone": "America/New_York"} | columns


@pytest.mark.few(4)
@pytest.mark.parametrize("catch_up", ["latest", "skip", "earliest", "all"])
@pytest.mark.parametrize("expression", SCHEDULES)
def test_jobs_of_one_shape_are_decided_as_each_would_be_alone(expression: str, catch_up: str) -> None:
    rng = Random(expression + catch_up)
    for _ in range(8):
        ends_at = rng.choice([None, NOW - timedelta(minutes=rng.randint(-90, 90))])
        max_runs = rng.choice([None, None, 2])
        row = terms(schedule=expression, catch_up=catch_up, ends_at=ends_at, max_runs=max_runs,
                    jitter=rng.choice([timedelta(0), timedelta(seconds=9)]))  # fmt: skip
        shared = Shape(row)
        for job_id in range(25):
            mark = NOW - rng.choice([300, 7200]) * rng.random() * timedelta(seconds=1)
            found = rng.choice([None, None, {"open": 2, "held": 1, "newest": 7}])
            alone = decide_job(row | NOTHING | {"id": job_id, "decided_until": mark} | (found or {}))
            decided = shared.decide(job_id, mark, ANCHOR, found)
            assert (decided.rows, decided.ends_others) == (alone.rows, alone.ends_others)
            assert (decided.advance.next_run_at, decided.advance.run_count) == (
                alone.advance.next_run_at, alone.advance.run_count
            )  # fmt: skip
            # Compare what each mark becomes: a mark only rises, and a shared decision may carry a lower one.
            assert max(mark, decided.advance.decided_until or mark) == max(mark, alone.advance.decided_until or mark)


@pytest.mark.parametrize("mark", [None, NOW, NOW - timedelta(days=1)])
@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_jobs_that_run_once_are_decided_as_each_would_be_alone(mark: datetime | None, ahead: int) -> None:
    row = terms(schedule=None, run_at=NOW + ahead * timedelta(minutes=1))
    shared = Shape(row)
    for this in (None, mark, NOW - timedelta(days=1), NOW):
        alone = decide_job(row | NOTHING | {"id": 1, "decided_until": this})
        decided = shared.decide(1, this)
        assert (decided.rows, decided.advance.next_run_at) == (alone.rows, alone.advance.next_run_at)


@pytest.mark.parametrize("expression", SCHEDULES)
def test_plan_on_time_equals_decide_unless_a_slot_is_late(expression: str) -> None:
    rng = Random(expression)
    for _ in range(200):
        misfire_after, start_deadline = rng.choice([0, 60, 900]), rng.choice([None, None, 30, 600])
        row = terms(schedule=expression, ends_at=rng.choice([None, NOW - timedelta(minutes=rng.randint(-90, 90))]),
                    misfire_after=timedelta(seconds=misfire_after),
                    start_deadline=None if start_deadline is None else timedelta(seconds=start_deadline),
                    decided_until=NOW - rng.choice([60, 1200]) * rng.random() * timedelta(seconds=1))  # fmt: skip
        schedule = job_schedule(row)
        quick = plan_on_time(row, schedule, row["decided_until"])
        found, *marks = decide(schedule, row["decided_until"], NOW, catch_up_policy(row), row["ends_at"])
        thorough = (add_intervals(schedule, row["decided_until"], found), *marks)
        late = any(decision.reason for decision in found)
        assert quick == (None if late else thorough)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("schedule", ["* * * * * *", None])
def test_a_slot_decided_within_a_second_has_not_misfired(
    schedule: str | None, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even with `misfire_after = 0`, because the tick comes some milliseconds after the slot."""
    if not guarded:
        monkeypatch.setattr(plan, "PUNCTUAL", timedelta(0))
    for late_ms, state in ((0, "queued"), (250, "queued" if guarded else "missed"), (1000.001, "missed")):
        slot = NOW.replace(microsecond=0)
        row = terms(schedule=schedule, run_at=slot, misfire_after=timedelta(0), catch_up="skip", ends_at=slot,
                    now=slot + timedelta(milliseconds=late_ms), decided_until=slot - timedelta(seconds=1))  # fmt: skip
        decided = decide_job(row | NOTHING | {"id": 1})
        assert [one.state for one in decided.rows] == [state], late_ms


def test_many_jobs_cost_one_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    real = shared_plan.plan
    monkeypatch.setattr(shared_plan, "plan", lambda job: asked.append(job["id"]) or real(job))  # type: ignore[func-returns-value]
    shared = Shape(terms(schedule="0 * * * *"))
    first = NOW.replace(minute=10, second=0, microsecond=0)
    decided = [shared.decide(n, first + n * timedelta(milliseconds=17)) for n in range(1000)]
    assert len(asked) == 1
    assert len({id(one) for one in decided}) == 1


def test_the_excluded_times_of_a_shape_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calendar may have 5,000 times, and a job may be decided each second."""
    holidays = read_rows([("c", date(2030, 1, 1), date(2030, 1, 1), None, None, None, None)])
    read: list[Any] = []
    monkeypatch.setattr(calendar, "_row", lambda row: read.append(row) or tuple(row))
    row = terms(schedule="* * * * * *", on_excluded="next_business_day", shifts=None, calendar_times=holidays,
                excluded=[[date(2031, 1, 1), date(2031, 1, 1), None]])  # fmt: skip
    Shape(row | {"excluded": None}).decide(1, NOW - timedelta(seconds=2), ANCHOR)
    assert read == []
    shape = Shape(row)
    assert len(read) == 2
    shape.decide(1, NOW - timedelta(seconds=2), ANCHOR)
    assert len(read) == 2
