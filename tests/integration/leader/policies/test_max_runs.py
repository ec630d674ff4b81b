"""max_runs counts a run as soon as it is made; explain says that slots after the last run will not come."""

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
def test_a_run_counts_as_soon_as_it_is_made(
    db: psycopg.Connection, policies: dict[str, Any], ended: str, counted: int
) -> None:
    """One of two slots never starts. In the last case it is skipped at once, and so does not count."""
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
def test_explain_says_that_a_slot_after_the_last_run_will_not_come(
    db: psycopg.Connection, schedule: str, days: int
) -> None:
    add(db, 0, schedule=schedule, max_runs=2)
    led(db)
    lead(db)
    first, second = (fire.at for fire in preview_job(jobs.show_job(db, "a"), 9).fires)
    assert (why(db, first).answer, why(db, second).answer) == ("future", "future")
    for slot in (second + HOUR, second + days * 24 * HOUR):
        found = why(db, slot)
        assert (found.slot, found.answer) == (slot, "max_runs")
        assert "its max_runs is 2, and 2 runs are left for the slots until then" in found.text


def test_explain_does_not_count_the_slots_until_a_very_late_one(db: psycopg.Connection) -> None:
    add(db, 0, schedule="* * * * * *", max_runs=1_000_000_000)
    led(db)
    far = now(db).astimezone(UTC).replace(microsecond=0) + timedelta(days=7000)
    assert why(db, far).answer == "future"
