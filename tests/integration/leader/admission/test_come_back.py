"""A run that has started, was admitted once or is revived waits only for its limits, not for bounds of a start."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.core.model import Claim, Result
from pgsched.db.queries.leader import leadership
from tests.support.db.limiting import add, admit, end, limit, limit_queue
from tests.support.db.overlapping import bound_run, finish, job_with_a_run, ticked, time_passes
from tests.support.db.setting import add_runs, cut, done, let_expire, reap, row_of, take
from tests.support.db.settling import settle
from tests.support.fleet import one

BESIDE = (
    "INSERT INTO pgsched.runs (job_id, scheduled_at, state, task, token, lease_until, attempt, started_at)"
    " SELECT id, '2020-01-02Z', 'running', 't', gen_random_uuid(), 'infinity', 1, now() FROM pgsched.jobs"
)


def limit_first(db: psycopg.Connection, what: str) -> None:
    """Set the first limit of the job, or of its queue."""
    if what == "job":
        db.execute("UPDATE pgsched.jobs SET concurrency_limit = 2")
    else:
        limit_queue(db, concurrency_limit=2)


def come_back(how: str, claim: Claim, dsn: str, db: psycopg.Connection) -> None:
    """End the claim in this way, and check that its run waits."""
    if how == "reaped":
        db.execute("UPDATE pgsched.runs SET begun = true WHERE state = 'running'")
        let_expire(db)
        assert [run["state"] for run in reap(db)] == ["waiting"]
    else:
        assert settle(dsn, done(claim, Result(how))) == ["waiting"]


@pytest.mark.parametrize("how", ["interrupted", "reaped"])
@pytest.mark.parametrize("what", ["job", "queue"])
def test_a_run_limited_while_running_is_admitted_after_its_start_deadline(
    what: str, how: str, dsn: str, db: psycopg.Connection
) -> None:
    run_id = bound_run(db)
    (claim,) = take(db)
    limit_first(db, what)
    time_passes(db)
    come_back(how, claim, dsn, db)
    admit(db)
    assert [again.id for again in take(db)] == [run_id]


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("how", ["interrupted", "released", "reaped"])
@pytest.mark.parametrize("what", ["job", "queue"])
def test_a_run_limited_while_running_waits_for_no_other_run_of_its_job(
    what: str, how: str, guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        if how == "reaped":
            cut(monkeypatch, "reap", "THEN r.available_at ELSE r.ready_at", "THEN NULL ELSE r.ready_at")
        else:
            cut(monkeypatch, "settle", "coalesce(r.ready_at, r.available_at)", "r.ready_at")
    run_id = job_with_a_run(db, "queued", overlap="allow")
    (claim,) = take(db)
    limit_first(db, what)
    come_back(how, claim, dsn, db)
    db.execute(BESIDE)
    admit(db)
    assert [again.id for again in take(db)] == ([run_id] if guarded else [])


@pytest.mark.parametrize("how", ["interrupted", "released", "reaped"])
def test_a_run_limited_while_running_is_admitted_before_newer_runs(how: str, dsn: str, db: psycopg.Connection) -> None:
    run_id = job_with_a_run(db, "queued", overlap="allow")
    (claim,) = take(db)
    limit_queue(db, concurrency_limit=1)
    add_runs(db, 1)
    come_back(how, claim, dsn, db)
    admit(db)
    assert [again.id for again in take(db, 2)] == [run_id]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_started_run_that_waits_is_admitted_after_its_start_deadline(
    guarded: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "admit_waiting", " OR w.started_at IS NOT NULL")
        cut(monkeypatch, "runs_expire", "r.id = late.id AND late.started", "false")  # this would end the wait as well
    run_id = job_with_a_run(db, "waiting", overlap="skip", start_deadline="1 hour")
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp()")
    admit(db)
    assert row_of(db, run_id)["state"] == ("queued" if guarded else "waiting")


def test_a_released_run_that_paid_no_token_gives_none_back(dsn: str, db: psycopg.Connection) -> None:
    job_with_a_run(db, "queued", overlap="allow")
    (claim,) = take(db)
    limit_queue(db, rate=1, rate_period="1 day")
    come_back("released", claim, dsn, db)
    assert one(db, "SELECT count(*) FROM pgsched.refunds") == 0


# ---- after retry_within has passed


def held_slot(db: psycopg.Connection) -> int:
    """Make a slot of a job with the key `k` wait for the run before it, for an hour at most; return its id."""
    limit(db, "k", 1)
    job_with_a_run(db, "running", overlap="skip", retry_within="1 hour", concurrency_key="k")
    assert ticked(db)[0][0] == "waiting"
    return int(one(db, "SELECT max(id) FROM pgsched.runs"))


def hours_pass(db: psycopg.Connection) -> None:
    """Let two hours pass for `held_until`, so that the time to retry is over for all runs."""
    db.execute("UPDATE pgsched.runs SET held_until = held_until - interval '2 hours'")


def occupy(db: psycopg.Connection) -> int:
    """Let another run take the only place of the key; return its id."""
    (other,) = add(db, 1, "k", priority=0)
    assert admit(db) == 1
    return other


@pytest.mark.parametrize("guarded", [True, False])
def test_a_started_run_is_not_skipped_while_it_waits_for_its_limits(
    guarded: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = "held_until <= (SELECT clock_timestamp())"
    if not guarded:
        cut(monkeypatch, "runs_expire", f"{held} AND started_at IS NULL", held)
    limit(db, "k", 1)
    occupy(db)
    run_id = job_with_a_run(db, "waiting", overlap="skip", retry_within="1 hour")
    db.execute(
        "UPDATE pgsched.runs SET concurrency_key = 'k', ready_at = now(), held_until = clock_timestamp()"
        " WHERE id = %s", [run_id]
    )  # fmt: skip
    assert leadership.find_due_work(db, 0).runs is False, "nor does the leader look for it again and again"
    admit(db)
    assert row_of(db, run_id)["state"] == ("waiting" if guarded else "skipped")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_admitted_once_is_not_skipped_when_it_waits_again(
    guarded: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "admit_waiting", ", held_until = NULL")
    run_id = held_slot(db)
    finish(db)
    assert admit(db) == 1
    assert row_of(db, run_id)["state"] == "queued"
    hours_pass(db)
    db.execute("UPDATE pgsched.limits SET concurrency = 0")
    assert admit(db) == 1
    admit(db)
    assert row_of(db, run_id)["state"] == ("waiting" if guarded else "skipped")


def test_a_skipped_slot_that_is_revived_waits_for_its_limits_only(db: psycopg.Connection) -> None:
    run_id = held_slot(db)
    hours_pass(db)
    admit(db)
    assert row_of(db, run_id)["state"] == "skipped"
    finish(db)
    other = occupy(db)
    assert one(db, "SELECT pgsched.retry(%s)", run_id) == "waiting"
    assert admit(db) == 0
    end(db, other)
    assert admit(db) == 1
    assert [claim.id for claim in take(db)] == [run_id]
