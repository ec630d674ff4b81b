"""Slots that an edit or a resume passes over get a row: slots after an end that is put off, and slots of one-offs."""

from __future__ import annotations

from datetime import datetime

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from pgsched.errors import InputError
from tests.support.db.passing import lead, now, pass_time
from tests.support.db.pausing import HOUR, add, hours, once, runs
from tests.support.db.pruning import prune


def stands(db: psycopg.Connection) -> tuple[bool, datetime | None]:
    """Return whether the slot of the only job is decided, and its next slot."""
    row = db.execute("SELECT decided_until >= run_at, next_run_at FROM pgsched.jobs").fetchone()
    assert row is not None
    return row[0], row[1]


def ended(db: psycopg.Connection, column: str) -> list[datetime]:
    """Add an hourly job that had its only slot five hours ago; return the slots since then."""
    add(db, overlap="allow", catch_up="all")
    end = 1 if column == "max_runs" else (hours(db, 1)[0] + 1.5 * HOUR).isoformat()
    jobs.update(db, "a", {column: end})
    pass_time(db, 3600)
    lead(db)
    assert stands(db)[1] is None
    pass_time(db, 5 * 3600)
    return hours(db, 5)


@pytest.mark.parametrize("column", ["max_runs", "ends_at"])
@pytest.mark.parametrize("paused", [False, True])
def test_slots_between_the_end_and_its_extension_are_recorded(
    db: psycopg.Connection, column: str, paused: bool
) -> None:
    since = ended(db, column)
    if paused:
        jobs.pause(db, "a")
        jobs.resume(db, "a")
        lead(db)
    jobs.update(db, "a", {column: None})
    lead(db)
    assert runs(db)[0][1] == since[0] - HOUR
    ((state, slot, *covers, reason),) = runs(db)[1:]
    assert (state, slot, covers) == ("skipped", since[-1], [since[0], since[-1], 5])
    assert reason.startswith(f"the job had ended: its {column} was ")
    assert "; it was extended at 20" in reason
    assert stands(db)[1] == since[-1] + HOUR


def test_an_extension_into_the_past_records_the_slots_up_to_it(db: psycopg.Connection) -> None:
    since = ended(db, "ends_at")
    jobs.update(db, "a", {"ends_at": since[1].isoformat()})
    lead(db)
    assert [run[1:5] for run in runs(db)[1:]] == [(since[1], since[0], since[1], 2)]
    assert stands(db)[1] is None
    jobs.update(db, "a", {"ends_at": None})
    lead(db)
    assert [run[1:5] for run in runs(db)[2:]] == [(since[4], since[2], since[4], 3)]


@pytest.mark.parametrize("column", ["max_runs", "ends_at"])
def test_an_edit_that_leaves_the_job_at_its_end_records_nothing(db: psycopg.Connection, column: str) -> None:
    since = ended(db, column)
    changes = {"max_runs": {"ends_at": "2100-01-01"}, "ends_at": {"max_runs": 9}}[column]
    for change in (changes, {"ends_at": (since[0] - 2 * HOUR).isoformat()}):
        jobs.update(db, "a", change)
        lead(db)
        assert (len(runs(db)), stands(db)[1]) == (1, None)


def test_slots_that_were_late_when_the_last_run_was_decided_are_recorded_too(db: psycopg.Connection) -> None:
    add(db, overlap="allow", catch_up="all", max_runs=1)
    pass_time(db, 4 * 3600)
    lead(db)
    assert [run[1] for run in runs(db)] == [hours(db, 4)[0]]
    jobs.update(db, "a", {"max_runs": 9})
    lead(db)
    assert [run[1:5] for run in runs(db)[1:]] == [(hours(db, 1)[0], hours(db, 3)[0], hours(db, 1)[0], 3)]


def test_slots_of_the_pause_are_recorded_if_the_end_is_put_off_on_resuming(db: psycopg.Connection) -> None:
    add(db, ends_at=(hours(db, 1)[0] + 1.5 * HOUR).isoformat())
    lead(db)
    jobs.pause(db, "a")
    pass_time(db, 4 * 3600)
    db.execute("UPDATE pgsched.jobs SET paused = false, ends_at = NULL")
    lead(db)
    assert [(run[0], run[4]) for run in runs(db)] == [("skipped", 4)]


# ---- jobs that run once


@pytest.mark.parametrize("gone", [False, True])
def test_a_one_off_in_the_pause_is_skipped_when_resumed_from_now(db: psycopg.Connection, gone: bool) -> None:
    once(db, 1, delete_after_run=gone)
    jobs.pause(db, "a", "incident 7", by="alice")
    pass_time(db, 2 * 3600)
    resumed = jobs.resume(db, "a")
    assert stands(db) == (True, None), "decided by the resume itself"
    for _ in range(2):
        lead(db)
        prune(db, 3600, 100)
    ((state, slot, *covers, reason),) = runs(db)
    assert (state, slot, covers) == ("skipped", resumed["run_at"], [None] * 3)
    assert reason.startswith("paused since 20")
    assert reason.endswith(" UTC by alice: incident 7")
    assert jobs.show_job(db, "a")["run_count"] == 0, "a one-off that was skipped stays, delete_after_run or not"


def test_a_one_off_in_the_pause_runs_when_resumed_from_the_pause(db: psycopg.Connection) -> None:
    once(db, 1)
    jobs.pause(db, "a")
    pass_time(db, 2 * 3600)
    jobs.resume(db, "a", "pause")
    assert stands(db)[0] is False
    lead(db)
    assert [run[0] for run in runs(db)] == ["queued"]


def test_a_one_off_due_before_the_pause_is_missed(db: psycopg.Connection) -> None:
    once(db, 1)
    pass_time(db, 2 * 3600)
    jobs.pause(db, "a", by="alice")
    jobs.resume(db, "a")
    lead(db)
    ((state, *_, reason),) = runs(db)
    assert state == "missed"
    assert reason.startswith("not decided before the job was paused at 20")


def test_a_one_off_due_now_that_is_added_paused_is_skipped_on_resuming(db: psycopg.Connection) -> None:
    add(db, schedule=None, paused=True)
    jobs.resume(db, "a")
    lead(db)
    assert [(run[0], run[5][:12]) for run in runs(db)] == [("skipped", "paused since")]


def test_a_one_off_due_after_the_pause_is_left_alone(db: psycopg.Connection) -> None:
    once(db, 3)
    jobs.pause(db, "a")
    pass_time(db, 2 * 3600)
    planned = jobs.resume(db, "a")
    assert stands(db) == (False, planned["run_at"])
    pass_time(db, 3600)
    lead(db)
    assert [run[0] for run in runs(db)] == ["queued"]


@pytest.mark.parametrize("paused", [False, True])
def test_moving_a_due_one_off_leaves_a_row_for_its_old_slot(db: psycopg.Connection, paused: bool) -> None:
    once(db, 1)
    if paused:
        jobs.pause(db, "a", by="alice")
    pass_time(db, 2 * 3600)
    old = jobs.show_job(db, "a")["run_at"]
    jobs.update(db, "a", {"run_at": (now(db) + HOUR).isoformat()})
    lead(db)
    ((state, slot, *_, reason),) = runs(db)
    assert slot == old
    if paused:
        assert (state, reason.startswith("paused since 20")) == ("skipped", True)
        assert reason.endswith("by alice; then run_at was edited")
    else:
        assert (state, reason) == ("missed", "run_at was edited before this slot was decided")
    jobs.resume(db, "a")
    pass_time(db, 2 * 3600)
    lead(db)
    assert [run[0] for run in runs(db)] == [state, "queued"], "the new slot runs"


def test_a_one_off_that_failed_to_be_planned_leaves_a_row_with_that_reason(db: psycopg.Connection) -> None:
    once(db, 1)
    pass_time(db, 2 * 3600)
    db.execute("UPDATE pgsched.jobs SET error = 'timezone: gone', error_at = now(), next_run_at = NULL")
    jobs.update(db, "a", {"run_at": (now(db) + HOUR).isoformat()})
    lead(db)
    ((state, *_, reason),) = runs(db)
    assert state == "missed"
    assert reason.endswith(": timezone: gone; then run_at was edited")


def test_a_due_one_off_cannot_be_moved_to_before_its_slot(db: psycopg.Connection) -> None:
    once(db, 1)
    pass_time(db, 2 * 3600)
    with pytest.raises(InputError, match=r"run_at: .* is not later than .*, which is already decided"):
        jobs.update(db, "a", {"run_at": (now(db) - 2 * HOUR).isoformat()})
    lead(db)
    assert [run[0] for run in runs(db)] == ["queued"], "a refused edit passes over nothing"


def test_a_schedule_for_a_due_one_off_leaves_a_row_for_its_old_slot(db: psycopg.Connection) -> None:
    once(db, 1)
    pass_time(db, 2 * 3600)
    jobs.update(db, "a", {"schedule": "0 0 1 1 *"})
    lead(db)
    assert [(run[0], run[5]) for run in runs(db)] == [("missed", "run_at was edited before this slot was decided")]


def test_a_one_off_instead_of_a_schedule_leaves_a_row_for_the_schedule_s_slots(db: psycopg.Connection) -> None:
    add(db)
    pass_time(db, 3 * 3600)
    with pytest.raises(InputError, match="which is already decided"):
        jobs.update(db, "a", {"schedule": None, "run_at": hours(db, 1)[0].isoformat()})
    jobs.update(db, "a", {"schedule": None, "run_at": (now(db) + HOUR).isoformat()})
    pass_time(db, 2 * 3600)
    lead(db)
    assert [(run[0], run[4]) for run in runs(db)] == [("missed", 3), ("queued", None)]


def test_another_time_zone_does_not_change_the_slot_of_a_one_off(db: psycopg.Connection) -> None:
    once(db, 1)
    pass_time(db, 2 * 3600)
    jobs.update(db, "a", {"timezone": "Asia/Tokyo"})
    lead(db)
    jobs.update(db, "a", {"timezone": "UTC"})
    lead(db)
    assert [run[0] for run in runs(db)] == ["queued"], "it ran once, and may be edited after that"
