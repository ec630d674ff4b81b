"""max_runs counts runs from their birth; what lies behind the last of them is told as such, also ahead of time."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.schedule.preview import preview_job
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.leader import ticks
from pgsched.leader.ticker import tick
from tests.support.db.explaining import HOUR, add, led, why
from tests.support.db.passing import lead, now, pass_time


def run_count(db: psycopg.Connection) -> int:
    return int(jobs.show_job(db, "a")["run_count"])


def decide(db: psycopg.Connection, seconds: float) -> None:
    pass_time(db, seconds)
    with db.transaction():
        tick(db, 100)


@pytest.mark.parametrize(
    ("policies", "ended", "counted"),
    [
        ({"overlap": "skip", "retry_within": "10 seconds"}, "skipped", 2),
        ({"overlap": "buffer_one", "start_deadline": "10 seconds"}, "missed", 2),
        ({"overlap": "replace"}, "cancelled", 2),
        ({"overlap": "skip"}, "skipped", 1),
    ],
)
def test_a_run_counts_from_its_birth(
    db: psycopg.Connection, policies: dict[str, Any], ended: str, counted: int
) -> None:
    """Of two slots one never starts; the last of these is skipped at once."""
    jobs.add(db, {"name": "a", "task": "t", "schedule": "@every 60s", "max_runs": 5} | policies)
    decide(db, 61)
    db.execute("UPDATE pgsched.runs SET state = 'running', started_at = now(), expires_at = NULL,"
               " token = gen_random_uuid(), lease_until = now() + interval '1 hour'"
               " WHERE %s <> 'cancelled'", [ended])  # fmt: skip
    decide(db, 60)
    pass_time(db, 20)
    ticks.admit(db, 100)
    states = [state for (state,) in db.execute("SELECT state FROM pgsched.runs ORDER BY scheduled_at").fetchall()]
    assert ended in states
    assert (len(states), run_count(db)) == (2, counted)


@pytest.mark.parametrize("schedule", ["@hourly", "@every 1h"])
@pytest.mark.parametrize("days", [9, 900])
def test_a_slot_behind_the_last_run_is_not_to_come(db: psycopg.Connection, schedule: str, days: int) -> None:
    add(db, 0, schedule=schedule, max_runs=2)
    led(db)
    lead(db)
    first, second = (fire.at for fire in preview_job(jobs.show_job(db, "a"), 9).fires)
    assert (why(db, first).answer, why(db, second).answer) == ("future", "future")
    for slot in (second + HOUR, second + days * 24 * HOUR):
        found = why(db, slot)
        assert (found.slot, found.answer) == (slot, "max_runs")
        assert "its max_runs is 2, and 2 runs are left for the slots until then" in found.text


def test_so_many_runs_are_left_that_nobody_counts_that_far(db: psycopg.Connection) -> None:
    add(db, 0, schedule="* * * * * *", max_runs=1_000_000_000)
    led(db)
    far = now(db).astimezone(UTC).replace(microsecond=0) + timedelta(days=7000)
    assert why(db, far).answer == "future"
