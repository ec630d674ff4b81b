"""Held runs: each job's oldest is let go alone, and thousands of held ones of a job do not hold up the leader."""

from __future__ import annotations

import time

import psycopg

from pgsched.db.queries.leader import ticks
from tests.support.db.setting import Open

HOLD = (
    "INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, state, task)"
    " SELECT j.id, s, s, 'waiting', 't' FROM pgsched.jobs j,"
    " generate_series(now() - %s * interval '1 second', now() - interval '1 second', '1 second') s ORDER BY s DESC"
)


def add_jobs(db: psycopg.Connection, count: int, held: int) -> None:
    """Jobs with so many held slots each."""
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task)"
               " SELECT 'j' || n, '0 0 1 1 *', 't' FROM generate_series(1, %s) n", [count])  # fmt: skip
    db.execute(HOLD, [held])


def admit(db: psycopg.Connection) -> int:
    with db.transaction():
        return ticks.admit(db, 5000)


def test_the_oldest_held_slot_of_each_job_starts_and_no_other(db: psycopg.Connection) -> None:
    add_jobs(db, 50, 3)
    assert [admit(db), admit(db)] == [50, 0]
    first = "SELECT bool_and(state = 'queued') FROM (SELECT DISTINCT ON (job_id) state FROM pgsched.runs" \
            " ORDER BY job_id, scheduled_at) r"  # fmt: skip
    assert db.execute(first).fetchone() == (True,)


def test_a_held_slot_that_somebody_has_locked_lets_no_later_one_by(db: psycopg.Connection, connect: Open) -> None:
    add_jobs(db, 2, 2)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE job_id = 1 ORDER BY scheduled_at LIMIT 1 FOR UPDATE")
    assert admit(db) == 1
    person.rollback()
    assert admit(db) == 1


def test_a_held_run_of_no_job_starts(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task, state) SELECT 't', 'waiting' FROM generate_series(1, 3)")
    assert admit(db) == 3


def test_thousands_of_held_slots_of_one_job_cost_milliseconds(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 5000)
    for _ in range(3):
        began = time.monotonic()
        assert admit(db) == 1
        assert time.monotonic() - began < 1.0  # about 0.01 s; the rest is for a loaded machine
        db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE state = 'queued'")
