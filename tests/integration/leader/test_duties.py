"""No lock and no long batch delays the rest of the leader's round or makes the leader spin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.leader import ticker
from pgsched.leader.duties import claims as claims_duty
from pgsched.leader.duties import waiting as waiting_duties
from pgsched.leader.ticker import tick
from tests.support.db.leading import lead
from tests.support.db.setting import Open, add_jobs, add_runs, let_expire, row_of, slots, take


@pytest.fixture
def impatient(connect: Open) -> psycopg.Connection:
    """Return a leader's connection that fails the test instead of waiting for a lock."""
    return connect(options="-c lock_timeout=500ms")


def overlapping(db: psycopg.Connection, overlap: str) -> int:
    """Add a job whose first slot is running while further slots are due; return the id of the running run."""
    add_jobs(db, 1, 3, overlap=overlap)
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT id, '2020-01-01', 't' FROM pgsched.jobs")
    (claim,) = take(db)
    return claim.id


def test_a_handler_s_transaction_holds_up_no_other_job(
    db: psycopg.Connection, connect: Open, impatient: psycopg.Connection
) -> None:
    run = overlapping(db, "terminate")
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('other', 't')")
    token = row_of(db, run)["token"]
    handler = connect(autocommit=False)
    handler.execute("SELECT pgsched.assert_claim(%s, %s)", [run, token])
    with impatient.transaction():
        tick(impatient, 100)
    other = db.execute("SELECT count(*) FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = job_id WHERE name = 'other'")
    assert other.fetchone() == (1,)
    row = row_of(db, run)
    assert (row["state"], row["token"]) == ("running", token), "what a transaction has asserted is not taken away"
    assert row["cancel_requested_at"] is not None, "it is asked instead"


def test_slots_that_cannot_be_decided_yet_hold_up_no_others(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_duties, "BATCH", 2)
    db.execute("INSERT INTO pgsched.jobs (name, task, paused) VALUES ('paused', 't', true), ('load', 't', false)")
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, available_at, options)"
        " SELECT 1000 + n, '2020-01-01Z', 't', 'waiting', '8998-01-01Z', jsonb_build_object('after_jobs', ARRAY[id])"
        " FROM generate_series(1, 6) n JOIN pgsched.jobs ON name = CASE WHEN n > 5 THEN 'load' ELSE 'paused' END"
        " ORDER BY n"
    )
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task)"
               " SELECT id, '2020-01-01Z', 't' FROM pgsched.jobs WHERE name = 'load'")  # fmt: skip
    leader = lead(db)
    for _ in range(4):
        leader.run_once()
    assert db.execute("SELECT run_id, parent_id FROM pgsched.dependencies").fetchall() == [(6, 7)]
    db.execute("UPDATE pgsched.jobs SET paused = false")
    for _ in range(10):
        leader.run_once()
    reasons = db.execute("SELECT DISTINCT reason FROM pgsched.runs WHERE id < 6").fetchall()
    assert reasons == [('after_jobs: job "paused" has no such slot',)]


def test_runs_whose_parent_is_locked_hold_up_no_others(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_duties, "BATCH", 2)
    add_runs(db, 8)
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = 2")
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = 1 FOR UPDATE")
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id)"
               " SELECT id, CASE WHEN id < 8 THEN 1 ELSE 2 END FROM pgsched.runs WHERE id > 2")  # fmt: skip
    leader = lead(db)
    for _ in range(4):
        leader.run_once()
    assert row_of(db, 8)["state"] == "queued"
    person.rollback()
    for _ in range(4):
        leader.run_once()
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = 1")
    for _ in range(4):
        leader.run_once()
    assert db.execute("SELECT DISTINCT state FROM pgsched.runs WHERE id > 2").fetchall() == [("queued",)]


def test_terminate_takes_a_claim_that_no_transaction_has_asserted(
    db: psycopg.Connection, impatient: psycopg.Connection
) -> None:
    run = overlapping(db, "terminate")
    with impatient.transaction():
        tick(impatient, 100)
    assert (row_of(db, run)["state"], row_of(db, run)["token"]) == ("cancelled", None)
    assert db.execute("SELECT outcome FROM pgsched.attempts").fetchall() == [("cancelled",)]


@pytest.mark.parametrize("overlap", ["terminate", "replace"])
def test_slots_of_one_batch_replace_each_other(overlap: str, db: psycopg.Connection) -> None:
    overlapping(db, overlap)
    with db.transaction():
        tick(db, 100)
    states = db.execute("SELECT state FROM pgsched.runs WHERE attempt = 0 ORDER BY scheduled_at").fetchall()
    assert [row[0] for row in states] == ["skipped", "skipped", "queued" if overlap == "terminate" else "waiting"]
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE reason LIKE '%replaced%'").fetchone() == (3,)


def test_a_due_job_locked_by_an_edit_does_not_make_the_leader_spin(
    db: psycopg.Connection, connect: Open, impatient: psycopg.Connection
) -> None:
    add_jobs(db, 1, 3)
    person = connect(autocommit=False)
    person.execute("UPDATE pgsched.jobs SET description = 'being edited'")
    loop = lead(impatient)
    waits = [loop.run_once() for _ in range(12)]
    assert waits[-1] >= 0.1
    assert max(waits) <= 0.2
    person.rollback()
    loop.run_once()
    assert slots(db) == (3, 3)


def test_a_batch_of_many_slots_ends_early_and_goes_on(
    db: psycopg.Connection, impatient: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticker, "MOST_SLOTS", 30)
    add_jobs(db, 10, 20)
    loop = lead(impatient)
    assert loop.run_once() == 0.0
    assert slots(db) == (40, 40)
    while slots(db)[0] < 200:
        loop.run_once()
    assert slots(db) == (200, 200)


def test_a_batch_of_schedules_that_take_long_to_read_ends_early_and_goes_on(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticker, "READ_S", 0.0)
    for n in range(4):
        # in Berlin all these times lie in the hour that the clock change skips: no schedule ever fires
        add_job(db, f"*/{n + 2} 2 * 3 0L", timezone="Europe/Berlin")
    ticks = []
    for _ in range(5):
        with db.transaction():
            ticks.append(tick(db, 100))
    assert [(ticked.jobs, ticked.errors) for ticked in ticks] == [(1, 1)] * 4 + [(0, 0)]


def test_jobs_whose_schedules_are_not_read_yet_are_not_prepared_ahead(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticker, "READ_S", 0.0)
    for n in range(3):
        add_job(db, "@every 1h", max_buffer=n + 1)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET anchor_at = c, next_run_at = c + interval '1 hour', decided_until = c"
                   " FROM (SELECT clock_timestamp() AS c) now")  # fmt: skip
    with db.transaction():
        ticked = tick(db, 100, 4000.0)
    assert (ticked.jobs, ticked.slots, ticked.undecided_count) == (1, 1, 2)


def add_job(db: psycopg.Connection, schedule: str, **columns: Any) -> None:
    given = {"schedule": schedule, "task": "t"} | columns
    db.execute(
        f"INSERT INTO pgsched.jobs (name, {', '.join(given)}) VALUES (gen_random_uuid(){', %s' * len(given)})",
        [*given.values()],
    )


def test_reaping_more_than_a_batch_does_not_wait_for_the_next_period(
    db: psycopg.Connection, impatient: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_duty, "BATCH", 2)
    add_runs(db, 5)
    take(db, 5)
    let_expire(db)
    loop = lead(impatient, reap_every_s=3600)
    for _ in range(3):
        loop.run_once()
    assert db.execute("SELECT DISTINCT state FROM pgsched.runs").fetchall() == [("queued",)]


def test_a_fixed_delay_counts_from_the_mark_once_the_last_run_is_pruned(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('j', '@after 10d', 't')")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "UPDATE pgsched.jobs SET anchor_at = clock_timestamp() - interval '19 days', next_run_at = now(),"
            " decided_until = clock_timestamp() - interval '9 days', run_count = 1"
        )
    with db.transaction():
        tick(db, 100)
    assert slots(db) == (0, 0), "the slot of 9 days ago is not repeated"
    row = db.execute("SELECT next_run_at - clock_timestamp() FROM pgsched.jobs").fetchone()
    assert row is not None
    assert timedelta(hours=23) < row[0] <= timedelta(days=1)


def test_an_excluded_stretch_whose_row_is_locked_holds_up_no_job(
    db: psycopg.Connection, impatient: psycopg.Connection, connect: Open
) -> None:
    add_jobs(db, 2, 5)
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date)"
               " SELECT min(id), (now() - interval '1 day')::date + n FROM pgsched.jobs, generate_series(0, 2) n"
               " GROUP BY n")  # fmt: skip
    with impatient.transaction():
        tick(impatient, 100)
    three_seconds_later(db)
    person = connect(autocommit=False)
    (stretch,) = person.execute("SELECT id, covers_count FROM pgsched.runs WHERE state = 'skipped' FOR UPDATE")
    with impatient.transaction():
        assert tick(impatient, 100).jobs == 2
    person.rollback()
    assert row_of(db, stretch[0])["covers_count"] == stretch[1]
    rest = db.execute("SELECT sum(covers_count) FROM pgsched.runs WHERE state = 'skipped'").fetchone()
    assert rest is not None and rest[0] >= stretch[1] + 3


def three_seconds_later(db: psycopg.Connection) -> None:
    """Move the jobs and their skipped stretches three seconds into the past, and make the jobs due again."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        ago = "- interval '3 seconds'"
        db.execute(f"UPDATE pgsched.jobs SET anchor_at = anchor_at {ago}, decided_until = decided_until {ago},"
                   " next_run_at = clock_timestamp(), ends_at = NULL")  # fmt: skip
        db.execute("DELETE FROM pgsched.runs WHERE state <> 'skipped'")
        db.execute(f"UPDATE pgsched.runs SET scheduled_at = scheduled_at {ago}, covers_from = covers_from {ago},"
                   f" covers_until = covers_until {ago}")  # fmt: skip
