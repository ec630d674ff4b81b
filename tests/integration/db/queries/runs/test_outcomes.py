"""Outcomes of attempts that are neither a plain end nor a plain retry: snoozes, cancel requests, crashes."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.core.model import Result, Settlement
from pgsched.db.queries.runs import claims
from tests.support.db.setting import add_runs, cut, done, row_of, take
from tests.support.db.settling import settle


def snoozed(claim: claims.Claim, seconds: float) -> Settlement:
    return done(claim, Result.SNOOZED)._replace(retry_in_s=seconds)


def test_a_snoozed_run_is_scheduled_and_has_used_no_attempt(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET max_attempts = 1")
    (claim,) = take(db)
    assert settle(dsn, snoozed(claim, 90)) == ["scheduled"]
    run = row_of(db, claim.id)
    assert (run["attempt"], run["error"], run["reason"]) == (0, None, "it failed")
    due = db.execute("SELECT available_at - clock_timestamp() BETWEEN '60 s' AND '90 s' FROM pgsched.runs").fetchone()
    assert due == (True,)
    assert db.execute("SELECT FROM pgsched.attempts").rowcount == 0
    assert settle(dsn, snoozed(claim, 90)) == ["repeated"]
    assert row_of(db, claim.id)["attempt"] == 0


@pytest.mark.parametrize(("attempts", "reason"), [(1, "its only attempt used"), (2, "all 2 attempts used")])
def test_a_dead_run_says_how_many_attempts_it_had(dsn: str, db: psycopg.Connection, attempts: int, reason: str) -> None:
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET max_attempts = %s, attempt = %s - 1", [attempts, attempts])
    (claim,) = take(db)
    assert settle(dsn, done(claim, Result.FAILED)._replace(retry_in_s=1)) == ["dead"]
    assert row_of(db, claim.id)["reason"] == reason


def test_a_snoozed_run_keeps_what_its_last_failure_said(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    db.execute("UPDATE pgsched.runs SET error = 'disk full'")
    settle(dsn, snoozed(claim, 1))
    assert row_of(db, claim.id)["error"] == "disk full"


def test_a_run_that_is_to_be_cancelled_does_not_come_back_from_a_snooze(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    db.execute("SELECT pgsched.cancel(%s)", [claim.id])
    assert settle(dsn, snoozed(claim, 90)) == ["cancelled"]


def test_a_snoozed_run_has_started_and_is_not_bound_by_its_start_deadline(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    settle(dsn, snoozed(claim, 0))
    db.execute("UPDATE pgsched.runs SET state = 'queued', expires_at = clock_timestamp() - interval '1 minute'")
    assert [again.attempt for again in take(db)] == [1]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_keeps_taking_its_process_down_is_quarantined(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(
            monkeypatch,
            "settle",
            "WHEN g.outcome = 'crashed' THEN r.crashes + 1\n",
            "WHEN g.outcome = 'crashed' THEN 0\n",
        )
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET max_attempts = 100")
    states = []
    for _ in range(5):
        (claim,) = take(db)
        crash = done(claim, Result.CRASHED)._replace(retry_in_s=0)
        states += settle(dsn, crash)
        db.execute("UPDATE pgsched.runs SET state = 'queued' WHERE state = 'scheduled'")
    assert states == ["scheduled"] * 4 + ["dead" if guarded else "scheduled"]
    run = row_of(db, claim.id)
    if guarded:
        assert (run["crashes"], run["reason"]) == (5, "quarantined: 5 attempts took their process down")
        assert db.execute("SELECT count(*) FROM pgsched.attempts WHERE outcome = 'crashed'").fetchone() == (5,)


def test_deaths_of_the_worker_and_of_the_process_count_together(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET max_attempts = 100, crashes = 4")
    (claim,) = take(db)
    assert settle(dsn, done(claim, Result.CRASHED)._replace(retry_in_s=0)) == ["dead"]


def test_an_ordinary_failure_is_no_crash_and_resets_the_count(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET max_attempts = 100, crashes = 4")
    (claim,) = take(db)
    assert settle(dsn, done(claim, Result.FAILED)) == ["scheduled"]
    assert row_of(db, claim.id)["crashes"] == 0
