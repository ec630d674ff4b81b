"""Figures, pruning, backfills and passed-over stretches: one row that cannot be written holds up no other."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.leader.isolation import set_aside
from tests.support.db.leading import lead
from tests.support.db.poisoning import GOOD, add_backfills, aside, heal, poison, until, waiting_run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.pg14


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten all pauses, so that rows that are set aside are tried again within a test."""
    monkeypatch.setattr(set_aside, "PROVEN_S", (0.5, 0.5, 0.5))


def prunable(db: psycopg.Connection) -> None:
    db.execute("UPDATE pgsched.retention SET archive = true, keep = jsonb_build_object('succeeded', '1 second')")
    waiting_run(db, GOOD, "state, finished_at", "'succeeded', now() - interval '1 hour' + n * interval '1 second'")
    db.execute("UPDATE pgsched.rollup_mark SET counted_until = now()")


LEFT = "SELECT array_agg(id) FROM pgsched.runs"


def test_one_run_that_cannot_be_archived_holds_up_no_other(db: psycopg.Connection) -> None:
    prunable(db)
    poison(db, "INSERT", "NEW.run_id = 7", "archived_runs")
    loop = lead(db, prune_every_s=0.05)
    wait_until(lambda: loop.run_once() >= 0 and aside(db), what="what is set aside")
    assert db.execute(LEFT.encode()).fetchone() == ([7],)
    assert aside(db) == [("pruning", "7", "poisoned")]
    heal(db)
    until(loop, db, LEFT, None)


def test_runs_that_ended_at_the_instant_of_one_set_aside_are_pruned(db: psycopg.Connection) -> None:
    prunable(db)
    db.execute("UPDATE pgsched.runs SET finished_at = now() - interval '1 hour'")
    poison(db, "INSERT", "NEW.run_id = 7", "archived_runs")
    loop = lead(db, prune_every_s=0.05, prune_batch=3)
    until(loop, db, LEFT, [7])
    assert aside(db) == [("pruning", "7", "poisoned")]


def test_a_run_id_that_is_used_again_is_archived_again(db: psycopg.Connection) -> None:
    for _ in range(2):
        prunable(db)
        loop = lead(db, prune_every_s=0.05)
        until(loop, db, LEFT, None)
        db.execute("SELECT setval(pg_get_serial_sequence('pgsched.runs', 'id'), 1, false)")
    assert db.execute("SELECT count(*), count(DISTINCT run_id) FROM pgsched.archived_runs").fetchone() == (
        2 * GOOD,
        GOOD,
    )
    assert aside(db) == []


def test_one_run_that_cannot_be_counted_holds_up_no_other(db: psycopg.Connection) -> None:
    ended = "'succeeded', now() - interval '1 minute' + n * interval '1 second', CASE n WHEN 7 THEN 'bad' ELSE 'q' END"
    waiting_run(db, GOOD, "state, finished_at, queue", ended)
    poison(db, "INSERT", "NEW.queue = 'bad'", "rollups")
    loop = lead(db, count_every_s=0.05)
    counted = "SELECT sum(runs) FROM pgsched.rollups WHERE width = 'minute'"
    until(loop, db, counted, GOOD - 1)
    assert aside(db) == [("figures", "7", "poisoned")]


def test_one_stretch_that_cannot_be_recorded_holds_up_no_other(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule)"
               " SELECT 'j' || n, 't', '@every 1s' FROM generate_series(1, %s) n", [GOOD])  # fmt: skip
    db.execute("INSERT INTO pgsched.passed_over"
               " (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason) SELECT id, schedule,"
               " timezone, '2026-01-01Z', '2026-01-01Z', '2026-01-01 00:00:05Z', 'skipped', 'x'"
               " FROM pgsched.jobs ORDER BY id")  # fmt: skip
    poison(db, "INSERT", "NEW.job_id = 7 AND NEW.reason = 'x'")
    loop = lead(db)
    left = "SELECT array_agg(job_id) FROM pgsched.passed_over"
    wait_until(lambda: loop.run_once() >= 0 and aside(db), what="what is set aside")
    assert db.execute(left.encode()).fetchone() == ([7],)
    heal(db)
    until(loop, db, left, None)


@pytest.mark.long
def test_one_backfill_that_cannot_be_begun_holds_up_no_other(db: psycopg.Connection) -> None:
    add_backfills(db, GOOD)
    poison(db, "INSERT", "NEW.job_id = 7")
    loop = lead(db)
    started = "SELECT array_agg(id ORDER BY id) FROM pgsched.backfills WHERE started = 0"
    until(loop, db, started, [7])
    assert aside(db) == [("backfills", "7", "poisoned")]
    heal(db)
    until(loop, db, started, None)
    until(loop, db, "SELECT count(*) FROM pgsched.set_aside", 0)
