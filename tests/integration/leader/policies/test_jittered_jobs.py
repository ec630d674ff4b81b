"""Jitter with other policies: a start that jitter moves keeps the time to retry that its slot was given."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.planning.jitter import offset
from pgsched.db.queries.leader import ticks
from tests.support.db.passing import add, job, lead, pass_time, runs, set_past_triggers

SECOND = timedelta(seconds=1)


def the_second_slot(db: psycopg.Connection, **columns: Any) -> dict[str, Any]:
    """Return the second slot of a job of every minute, just after it came due and while the first one is unfinished."""
    given = add(db, schedule="@every 60s", **columns)
    pass_time(db, 60.5)
    lead(db)
    db.execute("UPDATE pgsched.runs SET state = 'queued'")
    pass_time(db, 60)
    lead(db)
    found = runs(db)[1]
    assert found["available_at"] - found["scheduled_at"] == offset(given["id"], found["scheduled_at"], given["jitter"])
    return found


def test_retry_within_counts_from_the_start_and_not_from_the_slot(db: psycopg.Connection) -> None:
    found = the_second_slot(db, jitter="10 days", retry_within="20 seconds")
    assert found["state"] == "waiting"
    assert found["held_until"] - found["available_at"] == 20 * SECOND


def test_a_start_moved_behind_retry_within_happens_if_the_old_run_has_ended(db: psycopg.Connection) -> None:
    found = the_second_slot(db, jitter="10 days", retry_within="20 seconds")
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() WHERE state = 'queued'")
    start = (found["available_at"] - found["scheduled_at"]).total_seconds()
    pass_time(db, start)
    ticks.admit(db, 10)
    assert runs(db)[1]["state"] == "queued", runs(db)[1]["reason"]


@pytest.mark.parametrize("jitter", ["0", "50 seconds"])
def test_without_time_to_retry_a_slot_is_skipped_also_with_jitter(db: psycopg.Connection, jitter: str) -> None:
    assert the_second_slot(db, jitter=jitter, retry_within="0")["state"] == "skipped"


# ---- a slot that the next one replaces before it starts


@pytest.mark.parametrize("overlap", ["replace", "terminate"])
def test_a_job_whose_slots_would_end_each_other_before_they_start_is_refused(
    db: psycopg.Connection, overlap: str
) -> None:
    said = (
        f'jitter: 00:01:31 is longer than the interval of the schedule: under overlap "{overlap}" a slot would end'
        " the one before it, which has not started"
    )
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        add(db, schedule="@Every 1m30s", jitter="91 seconds", overlap=overlap)
    assert refused.value.diag.message_primary == said
    assert refused.value.diag.column_name == "jitter"
    add(db, schedule="@every 1m30s", jitter="90 seconds", overlap=overlap)
    for change in ("schedule = '@every 89s'", "jitter = '91 seconds'"):
        with pytest.raises(psycopg.errors.CheckViolation, match="is longer than the interval of the schedule"):
            db.execute(f"UPDATE pgsched.jobs SET {change}")
    db.execute("UPDATE pgsched.jobs SET overlap = 'skip', jitter = '10 minutes'")
    with pytest.raises(psycopg.errors.CheckViolation, match="is longer than the interval of the schedule"):
        db.execute("UPDATE pgsched.jobs SET overlap = %s", [overlap])


def test_a_job_that_an_older_release_accepted_can_still_be_paused(db: psycopg.Connection) -> None:
    add(db, schedule="@every 60s", overlap="replace")
    set_past_triggers(db, jitter="5 minutes")
    db.execute("UPDATE pgsched.jobs SET paused = true")
    assert job(db)["paused"]


@pytest.mark.parametrize("schedule", ["@after 10s", "@daily", "0 0 * * *", None])
def test_jitter_is_accepted_where_the_schedule_does_not_state_an_interval(
    db: psycopg.Connection, schedule: str | None
) -> None:
    assert add(db, schedule=schedule, jitter="2 days", overlap="replace")["jitter"] == timedelta(days=2)
