"""jobs.finish_by: an incident is open while a slot has not succeeded so long after its time."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.queries.leader import alerts
from tests.support.db.alerting import check, job, slot

OPENED, CLOSED = [("opened", "unfinished")], [("closed", "unfinished")]


def not_due(db: psycopg.Connection) -> None:
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp() + interval '1 hour'")


@pytest.mark.parametrize("state", ["queued", "running", "waiting", "scheduled", "dead", "cancelled", "missed"])
def test_a_slot_that_has_not_succeeded_in_time_is_an_incident_until_one_has(db: psycopg.Connection, state: str) -> None:
    mine = job(db, finish_by="2 hours", overlap="allow")
    not_due(db)
    slot(db, mine, 9, "succeeded")
    assert check(db) == []
    run = slot(db, mine, 3, state)
    assert check(db) == OPENED
    (one,) = alerts.list_alerts(db)
    assert one["run_id"] == run
    assert f"has not succeeded within 02:00:00: it is {state}" in one["details"]
    assert check(db) == []
    slot(db, mine, 1.5, "running")
    assert check(db) == [], "the next slot has time left, and has not succeeded yet"
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = %s OR phase < 3", [run])
    assert check(db) == CLOSED


@pytest.mark.parametrize("state", ["running", "dead"])
def test_a_slot_has_until_then(db: psycopg.Connection, state: str) -> None:
    mine = job(db, finish_by="4 hours", overlap="allow")
    not_due(db)
    slot(db, mine, 3, state)
    assert check(db) == []


def test_a_later_slot_that_succeeds_ends_it(db: psycopg.Connection) -> None:
    mine = job(db, finish_by="2 hours")
    not_due(db)
    slot(db, mine, 3, "dead")
    assert check(db) == OPENED
    slot(db, mine, 1, "succeeded")
    assert check(db) == CLOSED


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("dependency: run 3 (t) is dead", OPENED),
        ('after_jobs: job "load" has no such slot', OPENED),
        ("overlap: run 3 was not finished", OPENED),
        ("excluded date: Christmas", []),
        ("paused since 2026-05-01 by ops", []),
        ("shadow", []),
    ],
)
def test_a_slot_that_was_skipped_by_intention_is_none(
    db: psycopg.Connection, reason: str, expected: list[tuple[str, str]]
) -> None:
    mine = job(db, finish_by="2 hours")
    not_due(db)
    slot(db, mine, 9, "succeeded")
    slot(db, mine, 3, "skipped", reason=reason)
    assert check(db) == expected


def test_a_slot_that_is_not_decided_is_unfinished_unless_the_job_is_paused(db: psycopg.Connection) -> None:
    job(db, finish_by="2 hours")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp() - interval '3 hours'")
    assert check(db) == OPENED
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET paused = true, paused_at = now(), paused_by = 'ops'")
    assert check(db) == CLOSED


def test_a_retry_of_an_old_slot_and_a_run_by_hand_are_none(db: psycopg.Connection) -> None:
    mine = job(db, finish_by="2 hours", overlap="allow")
    not_due(db)
    slot(db, mine, 30, "queued", reruns=1)
    slot(db, mine, 9, "succeeded")
    slot(db, mine, 3, "dead", origin="manual")
    assert check(db) == []


@pytest.mark.parametrize("wrong", ["-1 second", "0.5 seconds", "11 years"])
def test_a_wrong_time_is_refused(db: psycopg.Connection, wrong: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="finish_by: "):
        job(db, finish_by=wrong)
