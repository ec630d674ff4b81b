"""Jitter beside the policies: a start that is moved keeps what its slot was promised."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.jitter import offset
from pgsched.db import leading
from tests.db.passing import add, lead, pass_time, runs

SECOND = timedelta(seconds=1)


def the_second_slot(db: psycopg.Connection, **columns: Any) -> dict[str, Any]:
    """The second slot of a job of every minute, a second after it came due and while the first one runs."""
    job = add(db, schedule="@every 60s", **columns)
    pass_time(db, 60.5)
    lead(db)
    db.execute("UPDATE pgsched.runs SET state = 'queued'")
    pass_time(db, 60)
    lead(db)
    found = runs(db)[1]
    assert found["available_at"] - found["scheduled_at"] == offset(job["id"], found["scheduled_at"], job["jitter"])
    return found


def test_retry_within_counts_from_the_start_and_not_from_the_slot(db: psycopg.Connection) -> None:
    found = the_second_slot(db, jitter="10 days", retry_within="20 seconds")
    assert found["state"] == "waiting"
    assert found["held_until"] - found["available_at"] == 20 * SECOND


def test_a_slot_moved_behind_its_retry_within_starts_when_the_old_run_ended_in_time(db: psycopg.Connection) -> None:
    found = the_second_slot(db, jitter="10 days", retry_within="20 seconds")
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() WHERE state = 'queued'")
    start = (found["available_at"] - found["scheduled_at"]).total_seconds()
    pass_time(db, start)
    leading.admit(db, 10)
    assert runs(db)[1]["state"] == "queued", runs(db)[1]["reason"]


@pytest.mark.parametrize("jitter", ["0", "50 seconds"])
def test_no_time_to_retry_is_none_with_jitter_as_well(db: psycopg.Connection, jitter: str) -> None:
    assert the_second_slot(db, jitter=jitter, retry_within="0")["state"] == "skipped"
