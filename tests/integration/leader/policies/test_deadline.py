"""start_deadline: it is checked again at the claim, and an expired run is settled within about a second."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.core.model import Result
from pgsched.db.queries.leader import leadership, ticks
from tests.support.db.overlapping import admitted, bound_run, job_with_a_run, leader, states, ticked, time_passes
from tests.support.db.setting import Open, add_jobs, cut, done, row_of, take
from tests.support.db.settling import settle
from tests.support.waiting import wait_until


def test_an_expired_run_is_settled_within_a_second(dsn: str, db: psycopg.Connection) -> None:
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
    assert leadership.find_due_work(db, 0).wait_s is None
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp() + interval '5 seconds', started_at = NULL")
    assert 4 < (leadership.find_due_work(db, 0).wait_s or 0) <= 5
    db.execute("UPDATE pgsched.runs SET state = 'waiting', held_until = clock_timestamp() + interval '2 seconds'")
    assert 1 < (leadership.find_due_work(db, 0).wait_s or 0) <= 2


def test_expired_runs_are_not_admitted_even_if_they_exceed_a_batch(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 0)
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, state, task, expires_at)"
        " SELECT id, '2020-01-01Z', 'waiting', 't', clock_timestamp() FROM pgsched.jobs"
    )
    with db.transaction():
        assert ticks.admit(db, 1) == 1
    assert sorted(states(db)) == ["missed", "waiting", "waiting"]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_released_run_that_has_not_begun_is_bound_by_its_deadline_again(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = bound_run(db)
    if not guarded:
        cut(monkeypatch, "settle", "g.outcome = 'released' AND (SELECT", "false AND (SELECT")
    (claim,) = take(db)
    assert settle(dsn, done(claim, Result.RELEASED)) == ["queued"]
    row = row_of(db, run_id)
    assert (row["attempt"], row["started_at"] is None, row["lease_until"]) == (0, guarded, None)
    assert db.execute("SELECT count(*) FROM pgsched.attempts").fetchone() == (0,)
    time_passes(db)
    assert admitted(db) == (1 if guarded else 0)
    assert row_of(db, run_id)["state"] == ("missed" if guarded else "queued")
    assert len(take(db)) == (0 if guarded else 1)


@pytest.mark.parametrize("first", [Result.FAILED, Result.INTERRUPTED, Result.SNOOZED])
def test_a_run_that_has_begun_once_has_no_deadline_after_a_later_release(
    first: Result, dsn: str, db: psycopg.Connection
) -> None:
    run_id = bound_run(db)
    (claim,) = take(db)
    settle(dsn, done(claim, first))
    time_passes(db)
    db.execute("UPDATE pgsched.runs SET available_at = clock_timestamp()")
    assert admitted(db) == (0 if first is Result.INTERRUPTED else 1)
    (again,) = take(db)
    assert settle(dsn, done(again, Result.RELEASED)) == ["queued"]
    assert admitted(db) == 0
    assert [claim.id for claim in take(db)] == [run_id]


def test_a_running_run_is_not_missed_when_its_deadline_passes(dsn: str, db: psycopg.Connection) -> None:
    bound_run(db)
    (claim,) = take(db)
    time_passes(db)
    assert admitted(db) == 0
    assert settle(dsn, done(claim)) == ["succeeded"]


@pytest.mark.parametrize("guarded", [True, False])
def test_the_leader_is_notified_of_a_released_run_with_a_deadline(
    guarded: bool, dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader knows no deadline of a running run, and would sleep past this one."""
    bound_run(db)
    if not guarded:
        cut(monkeypatch, "settle", " OR s.expires_at IS NOT NULL AND s.started_at IS NULL")
    (claim,) = take(db)
    db.execute("SELECT pgsched.leader_sleeps(60)")
    listener = connect()
    listener.execute("LISTEN pgsched_leader")
    settle(dsn, done(claim, Result.RELEASED))
    db.execute("NOTIFY pgsched_leader, 'the end'")
    (heard, *_) = listener.notifies(timeout=10, stop_after=1)
    assert heard.payload == ("runs" if guarded else "the end")


def test_the_release_of_a_run_that_is_to_be_cancelled_ends_the_run(dsn: str, db: psycopg.Connection) -> None:
    run_id = bound_run(db)
    (claim,) = take(db)
    db.execute("SELECT pgsched.cancel(%s)", [run_id])
    assert settle(dsn, done(claim, Result.RELEASED)) == ["cancelled"]
    assert db.execute("SELECT count(*) FROM pgsched.attempts").fetchone() == (0,)
