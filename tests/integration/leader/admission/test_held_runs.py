"""Only the oldest waiting slot of a job is admitted, and thousands of waiting slots do not delay the leader."""

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
    """Add jobs with this many waiting slots each."""
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task)"
               " SELECT 'j' || n, '0 0 1 1 *', 't' FROM generate_series(1, %s) n", [count])  # fmt: skip
    db.execute(HOLD, [held])


def admit(db: psycopg.Connection) -> int:
    with db.transaction():
        return ticks.admit(db, 5000)


def test_only_the_oldest_waiting_slot_of_each_job_is_admitted(db: psycopg.Connection) -> None:
    add_jobs(db, 50, 3)
    assert [admit(db), admit(db)] == [50, 0]
    first = "SELECT bool_and(state = 'queued') FROM (SELECT DISTINCT ON (job_id) state FROM pgsched.runs" \
            " ORDER BY job_id, scheduled_at) r"  # fmt: skip
    assert db.execute(first).fetchone() == (True,)


def test_a_locked_waiting_slot_is_not_overtaken_by_a_later_one(db: psycopg.Connection, connect: Open) -> None:
    add_jobs(db, 2, 2)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE job_id = 1 ORDER BY scheduled_at LIMIT 1 FOR UPDATE")
    assert admit(db) == 1
    person.rollback()
    assert admit(db) == 1


def test_waiting_runs_without_a_job_are_admitted(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task, state) SELECT 't', 'waiting' FROM generate_series(1, 3)")
    assert admit(db) == 3


def test_thousands_of_waiting_slots_of_one_job_cost_milliseconds(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 5000)
    for _ in range(3):
        began = time.monotonic()
        assert admit(db) == 1
        assert time.monotonic() - began < 1.0  # takes about 0.01 s; the margin is for a loaded machine
        db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE state = 'queued'")
