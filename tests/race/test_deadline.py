"""start_deadline: decided once more at the claim, and what expires is settled within about a second."""

from __future__ import annotations

import psycopg

from pgsched.db import leading
from tests.race.setting import add_jobs, row_of, take
from tests.race.test_overlap import admitted, job_with_a_run, leader, states, ticked
from tests.waiting import wait_until


def test_what_expires_is_settled_within_a_second_of_it(dsn: str, db: psycopg.Connection) -> None:
    job_with_a_run(db, "running", overlap="buffer_all", start_deadline="1 hour")
    ticked(db, 3)
    db.execute(
        "UPDATE pgsched.runs SET state = s, expires_at = clock_timestamp() + interval '1.5 s', finished_at = NULL"
        " FROM (SELECT id AS i, (ARRAY['waiting', 'queued', 'scheduled'])[row_number() OVER ()] AS s FROM pgsched.runs"
        " WHERE state = 'waiting') n WHERE id = i"
    )
    db.execute("UPDATE pgsched.runs SET available_at = clock_timestamp() + interval '1 hour' WHERE state = 'scheduled'")
    with leader(dsn, reap_every_s=3600):
        wait_until(lambda: states(db) == ["running"] + ["missed"] * 3, what="the expired to be missed")
    late = db.execute("SELECT max(finished_at - expires_at) < interval '1 s', min(reason) FROM pgsched.runs").fetchone()
    assert late is not None and late[0]
    assert str(late[1]).startswith("start_deadline passed: not started by ")


def test_the_deadline_is_checked_at_the_claim(db: psycopg.Connection) -> None:
    job_with_a_run(db, "queued", overlap="skip", start_deadline="1 hour")
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp(), started_at = NULL")
    assert take(db) == []
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp() + interval '1 minute'")
    assert len(take(db)) == 1


def test_a_run_that_began_in_time_is_tried_again_after_its_deadline(db: psycopg.Connection) -> None:
    old = job_with_a_run(db, "scheduled", overlap="skip", start_deadline="1 hour")
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp(), available_at = clock_timestamp()")
    assert admitted(db) == 1
    assert row_of(db, old)["state"] == "queued"
    assert [claim.id for claim in take(db)] == [old]


def test_the_leader_knows_when_the_next_run_expires(db: psycopg.Connection) -> None:
    job_with_a_run(db, "queued", overlap="skip", start_deadline="1 hour")
    db.execute("UPDATE pgsched.jobs SET paused = true")
    assert leading.look(db, 0).wait_s is None
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp() + interval '5 seconds', started_at = NULL")
    assert 4 < (leading.look(db, 0).wait_s or 0) <= 5
    db.execute("UPDATE pgsched.runs SET state = 'waiting', held_until = clock_timestamp() + interval '2 seconds'")
    assert 1 < (leading.look(db, 0).wait_s or 0) <= 2


def test_what_expired_is_not_admitted_even_if_there_is_too_much_of_it(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 0)
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, state, task, expires_at)"
        " SELECT id, '2020-01-01Z', 'waiting', 't', clock_timestamp() FROM pgsched.jobs"
    )
    with db.transaction():
        assert leading.admit(db, 1) == 1
    assert sorted(states(db)) == ["missed", "waiting", "waiting"]
