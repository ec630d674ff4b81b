"""Columns that the database keeps about a job cannot be set by hand, or are corrected."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.leader.ticker import tick
from tests.support.db.inserting import add, job
from tests.support.db.passing import lead, now, pass_time
from tests.support.db.setting import cut


@pytest.mark.parametrize("by_hand", [None, "2100-01-01Z"])
@pytest.mark.parametrize("guarded", [True, False])
def test_a_next_slot_set_by_hand_is_planned_again(db: psycopg.Connection, by_hand: str | None, guarded: bool) -> None:
    if not guarded:
        db.execute("ALTER TABLE pgsched.jobs DISABLE TRIGGER b_plan_again")
    add(db, schedule="@hourly")
    lead(db)
    due = job(db, "next_run_at")
    assert due > now(db), "what the leader writes stays"
    db.execute("UPDATE pgsched.jobs SET next_run_at = %s", [by_hand])
    lead(db)
    assert (job(db, "next_run_at") == due) == guarded


def test_a_job_in_error_or_at_its_end_is_not_planned_again(db: psycopg.Connection) -> None:
    add(db, max_runs=1, schedule="@every 1s")
    pass_time(db, 1)
    lead(db)
    assert job(db, "next_run_at") is None, "the leader says that nothing is left"
    db.execute("UPDATE pgsched.jobs SET error = 'x', error_at = now(), next_run_at = NULL")
    assert job(db, "next_run_at") is None


@pytest.mark.parametrize("guarded", [True, False])
def test_the_next_slots_that_the_leader_writes_are_not_planned_again(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        cut(monkeypatch, "tick_advance", "set_config('pgsched.ticks', 'on', true)", "'on'")
    add(db, schedule="@every 1s")
    add(db, name="b", schedule="@hourly")
    pass_time(db, 5)
    with db.transaction():
        assert tick(db, 100).jobs == 2
    later = db.execute("SELECT count(*) FROM pgsched.jobs WHERE next_run_at > clock_timestamp()").fetchone()
    assert later == (2 if guarded else 0,)


@pytest.mark.parametrize("column", ["created_at", "updated_at", "paused_at"])
def test_the_times_of_creation_edit_and_pause_cannot_be_set_by_hand(db: psycopg.Connection, column: str) -> None:
    add(db, schedule="@daily", paused=True)
    kept = job(db, column)
    db.execute(f"UPDATE pgsched.jobs SET {column} = 'infinity'")
    assert kept <= job(db, column) <= now(db)
    db.execute("UPDATE pgsched.jobs SET paused = false")
    db.execute("UPDATE pgsched.jobs SET paused_at = 'infinity', paused_by = 'x'")
    assert job(db, "paused_at", "paused_by") == (None, None)


def test_a_pause_ignores_an_author_and_a_reason_written_before(db: psycopg.Connection) -> None:
    add(db, schedule="@daily", paused_by="x", paused_reason="y", paused_at="infinity")
    assert job(db, "paused_at", "paused_by", "paused_reason") == (None, None, None)
    db.execute("UPDATE pgsched.jobs SET paused = true")
    assert job(db, "paused_by") == db.execute("SELECT session_user").fetchone()[0]
