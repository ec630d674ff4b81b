"""A schedule that never fires puts its job in error within a second, visible in status and lists, and no other job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.db.queries.jobs import jobs
from pgsched.leader.election import Leader
from pgsched.leader.ticker import tick
from pgsched.services.status import read_status
from tests.support.waiting import wait_until

NEVER = [
    ("0 0 30 2 *", "UTC", "schedule: never fires: no month has such a day"),
    ("0 0 31 4,6,9,11 *", "Europe/Berlin", "schedule: never fires: no month has such a day"),
    ("* 2 * 3 SUNL", "Europe/Berlin", "schedule: never fires: Europe/Berlin skips every such time"),
]


def add(db: psycopg.Connection, name: str, schedule: str, zone: str = "UTC") -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, timezone) VALUES (%s, 't', %s, %s)", [name, schedule, zone]
    )


def tick_once(db: psycopg.Connection) -> int:
    with db.transaction():
        return tick(db, 100).errors


@pytest.mark.parametrize(("schedule", "zone", "error"), NEVER)
def test_a_schedule_that_never_fires_is_accepted_and_then_in_error(
    db: psycopg.Connection, schedule: str, zone: str, error: str
) -> None:
    add(db, "never", schedule, zone)
    assert jobs.show_job(db, "never")["error"] is None
    assert tick_once(db) == 1
    shown = jobs.show_job(db, "never")
    assert shown["error"] == error
    assert shown["error_at"] is not None and shown["next_run_at"] is None
    seen = read_status(db)
    assert [(job.name, job.error) for job in seen.errors] == [("never", error)]
    assert f"job never is in error: {error}" in seen.problems and not seen.healthy
    assert [job["name"] for job in jobs.list_jobs(db, state="error")] == ["never"]


def test_the_other_jobs_of_the_batch_are_planned(db: psycopg.Connection) -> None:
    add(db, "before", "0 0 * * *")
    add(db, "never", "0 0 30 2 *")
    add(db, "after", "0 1 * * *")
    assert tick_once(db) == 1
    assert [job["name"] for job in jobs.list_jobs(db) if job["next_run_at"] is not None] == ["after", "before"]
    assert [job.name for job in read_status(db).errors] == ["never"]


def test_an_edited_schedule_ends_the_error(db: psycopg.Connection) -> None:
    add(db, "never", "0 0 30 2 *")
    tick_once(db)
    assert tick_once(db) == 0, "a job in error is not evaluated again and again"
    db.execute("UPDATE pgsched.jobs SET schedule = '0 0 28 2 *'")
    tick_once(db)
    shown = jobs.show_job(db, "never")
    assert shown["error"] is None and (shown["next_run_at"].month, shown["next_run_at"].day) == (2, 28)
    assert read_status(db).errors == []


@pytest.fixture
def leader(dsn: str) -> Iterator[Leader]:
    """Run a leader in a thread."""
    found = Leader(dsn, LeaderSettings(), "test")
    thread = threading.Thread(target=found.run)
    thread.start()
    yield found
    found.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_a_running_leader_finds_a_job_that_never_fires_within_a_second(db: psycopg.Connection, leader: Leader) -> None:
    wait_until(lambda: (led := read_status(db).leader) is not None and led.alive, what="a leader")
    took = []
    for number, (schedule, zone, _) in enumerate(NEVER):
        add(db, f"never {number}", schedule, zone)
        shown = wait_until(lambda n=number: (job := jobs.show_job(db, f"never {n}"))["error"] and job, what="the error")
        took.append(shown["error_at"] - shown["created_at"])
    assert min(took) < timedelta(seconds=1), took  # a busy machine may have delayed the others
