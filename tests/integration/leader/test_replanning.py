"""A new leader plans a job again if the leader's own time zone rules give another next slot."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.schedule import cron as core
from pgsched.leader import replanning
from pgsched.leader.replanning import Replanning
from tests.support.db.leading import lead
from tests.support.db.setting import Open
from tests.support.waiting import wait_until

HOUR = timedelta(hours=1)


def planned(db: psycopg.Connection, count: int = 1, **columns: Any) -> list[datetime]:
    """Add jobs in Berlin that are due on 29 February, let a leader plan them, and return their next slots."""
    given = {"schedule": "30 6 29 2 *", "timezone": "Europe/Berlin", "task": "t"} | columns
    db.execute(
        f"INSERT INTO pgsched.jobs (name, {', '.join(given)})"
        f" SELECT 'j' || n, {', '.join(['%s'] * len(given))} FROM generate_series(1, %s) n",
        [*given.values(), count],
    )
    lead(db).run_once()
    return next_slots(db)


def next_slots(db: psycopg.Connection) -> list[datetime]:
    return [row[0] for row in db.execute("SELECT next_run_at FROM pgsched.jobs ORDER BY id").fetchall()]


def other_rules(db: psycopg.Connection, moved: timedelta = HOUR) -> None:
    """Move the next slots, as if a former leader had planned them by other time zone rules."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET next_run_at = next_run_at + %s", [moved])


def perform(db: psycopg.Connection) -> None:
    """Run the rounds that a new leader makes without a pause."""
    loop = lead(db)
    while not loop.run_once():
        pass


@pytest.mark.parametrize("moved", [HOUR, -HOUR])
def test_a_slot_that_new_rules_have_moved_is_planned_by_the_new_leader(
    db: psycopg.Connection, moved: timedelta
) -> None:
    slots = planned(db)
    other_rules(db, moved)
    perform(db)
    assert next_slots(db) == slots
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)


def test_all_jobs_are_checked_however_many_there_are(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replanning, "JOBS", 3)
    slots = planned(db, 10)
    other_rules(db)
    perform(db)
    assert next_slots(db) == slots


def test_slow_schedules_are_checked_over_several_rounds(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replanning, "LONGEST_S", 0.0)
    slots = planned(db, 5)
    other_rules(db)
    perform(db)
    assert next_slots(db) == slots


def test_a_paused_job_s_slot_is_corrected_before_the_job_is_resumed(db: psycopg.Connection) -> None:
    planned(db)
    db.execute("UPDATE pgsched.jobs SET paused = true")
    other_rules(db)
    perform(db)
    assert db.execute("SELECT next_run_at <= clock_timestamp() FROM pgsched.jobs").fetchone() == (True,)


@pytest.mark.long
def test_a_job_locked_by_an_edit_is_checked_again_later(db: psycopg.Connection, connect: Open) -> None:
    slots = planned(db, 2)
    other_rules(db)
    editor = connect(autocommit=False)
    editor.execute("UPDATE pgsched.jobs SET description = 'mine' WHERE name = 'j1'")
    loop = lead(db)
    while not loop.run_once():
        pass
    assert next_slots(db) == [slots[0] + HOUR, slots[1]]
    editor.commit()
    wait_until(lambda: loop.run_once() >= 0 and next_slots(db) == slots, what="the other one")


def test_correctly_planned_jobs_are_checked_once_and_left_alone(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = planned(db, 3)
    before = db.execute("SELECT array_agg(xmin::text) FROM pgsched.jobs").fetchone()
    loop = lead(db)
    loop.run_once()
    monkeypatch.setattr(Replanning, "check_jobs", lambda *_: pytest.fail("it looks again"))
    loop.run_once()
    assert (next_slots(db), db.execute("SELECT array_agg(xmin::text) FROM pgsched.jobs").fetchone()) == (slots, before)


@pytest.mark.parametrize(
    "columns",
    [
        {"timezone": "UTC"},
        {"schedule": "@every 7d"},
        {"schedule": "@after 7d"},
        {"schedule": None, "run_at": "2999-01-01"},
    ],
)
def test_a_slot_that_depends_on_no_time_zone_is_not_computed_again(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any]
) -> None:
    planned(db, **columns)
    monkeypatch.setattr(replanning, "has_moved", lambda *_: pytest.fail("it was computed"))
    lead(db).run_once()


def test_a_zone_that_this_host_cannot_read_moves_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> core.Schedule:
        raise OSError("too many open files")

    monkeypatch.setattr(replanning, "parse", unreadable)
    instant = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    assert not replanning.has_moved.__wrapped__("0 0 * * *", "Asia/Tokyo", instant, instant)
