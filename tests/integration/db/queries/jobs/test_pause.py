"""Pausing and resuming a job: its author, its reason, and what becomes of the slots in between."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from pgsched.errors import InputError, NotFound
from tests.support.db.passing import lead, pass_time
from tests.support.db.pausing import HOUR, add, hours, runs


def user(db: psycopg.Connection) -> str:
    row = db.execute("SELECT session_user").fetchone()
    assert row is not None
    return str(row[0])


def test_the_author_is_the_sessions_user_or_the_name_from_the_caller(db: psycopg.Connection) -> None:
    add(db)
    assert jobs.pause(db, "a", "incident 7")["paused_by"] == user(db)
    jobs.resume(db, "a")
    job = jobs.pause(db, "a", "incident 8", by="alice")
    assert (job["paused_by"], job["paused_reason"]) == ("alice", "incident 8")
    again = jobs.pause(db, "a", "still incident 8")
    assert (again["paused_by"], again["paused_reason"]) == ("alice", "still incident 8")
    assert again["paused_at"] == job["paused_at"], "pausing again keeps since when"
    resumed = jobs.resume(db, "a")
    assert [resumed[c] for c in ("paused", "paused_at", "paused_by", "paused_reason")] == [False, None, None, None]


def test_after_a_resume_from_now_one_row_stands_for_the_stretch(db: psycopg.Connection) -> None:
    add(db)
    lead(db)
    jobs.pause(db, "a", "incident 7")
    pass_time(db, 3 * 3600)
    jobs.resume(db, "a")
    lead(db)
    first, _, newest = hours(db, 3)
    ((state, slot, covers_from, covers_until, count, reason),) = runs(db)
    assert (state, slot, covers_from, covers_until, count) == ("skipped", newest, first, newest, 3)
    assert reason.startswith("paused since 20")
    assert reason.endswith(f" UTC by {user(db)}: incident 7")
    assert jobs.show_job(db, "a")["next_run_at"] == newest + HOUR
    lead(db)
    assert len(runs(db)) == 1, "recorded once"


def test_after_a_resume_from_the_pause_the_catch_up_policy_decides(db: psycopg.Connection) -> None:
    add(db, catch_up="all")
    lead(db)
    mark = jobs.show_job(db, "a")["decided_until"]
    jobs.pause(db, "a")
    pass_time(db, 3 * 3600)
    jobs.resume(db, "a", "pause")
    assert jobs.show_job(db, "a")["decided_until"] == mark - 3 * HOUR, "the mark stays where it was"
    lead(db)
    assert runs(db)[0][:2] == ("queued", hours(db, 3)[0])
    assert {run[1] for run in runs(db)} == set(hours(db, 3))


def test_plain_sql_resumes_from_the_pause_once(db: psycopg.Connection) -> None:
    add(db, catch_up="latest", misfire_after="0")
    lead(db)
    for expected in ("queued", "skipped"):
        db.execute("UPDATE pgsched.jobs SET paused = true")
        pass_time(db, 3 * 3600)
        db.execute("DELETE FROM pgsched.runs")
        if expected == "queued":
            db.execute("UPDATE pgsched.jobs SET paused = false, resume_from = 'pause'")
        else:
            db.execute("UPDATE pgsched.jobs SET paused = false")
        assert db.execute("SELECT resume_from FROM pgsched.jobs").fetchone() == ("now",)
        lead(db)
        assert [(run[0], run[4]) for run in runs(db)] == [(expected, 3)]


@pytest.mark.parametrize("born_paused", [True, False])
def test_a_job_paused_before_any_leader_planned_it_loses_no_slot(db: psycopg.Connection, born_paused: bool) -> None:
    add(db, paused=born_paused)
    if not born_paused:
        jobs.pause(db, "a")
    pass_time(db, 3 * 3600)
    jobs.resume(db, "a")
    lead(db)
    first, _, newest = hours(db, 3)
    assert [run[:5] for run in runs(db)] == [("skipped", newest, first, newest, 3)]


def test_a_pause_between_two_slots_leaves_no_row(db: psycopg.Connection) -> None:
    add(db, schedule="0 0 1 1 *")
    jobs.pause(db, "a")
    jobs.resume(db, "a")
    lead(db)
    assert runs(db) == []
    assert db.execute("SELECT count(*) FROM pgsched.passed_over").fetchone() == (0,)


def test_slots_due_before_the_pause_are_not_blamed_on_it(db: psycopg.Connection) -> None:
    add(db)
    pass_time(db, 3 * 3600)
    jobs.pause(db, "a", "incident 7", by="alice")
    pass_time(db, 2 * 3600)
    jobs.resume(db, "a")
    lead(db)
    before, during = runs(db)
    assert (before[0], before[1:5]) == ("missed", (hours(db, 3)[0], hours(db, 5)[0], hours(db, 3)[0], 3))
    assert before[5].startswith("not decided before the job was paused at 20")
    assert before[5].endswith(" UTC by alice: incident 7")
    assert (during[0], during[1:5]) == ("skipped", (hours(db, 1)[0], hours(db, 2)[0], hours(db, 1)[0], 2))
    assert during[5].startswith("paused since 20")


def test_an_edit_during_the_pause_is_named_in_both_stretches(db: psycopg.Connection) -> None:
    add(db)
    pass_time(db, 3 * 3600)
    jobs.pause(db, "a", by="alice")
    pass_time(db, 2 * 3600)
    jobs.update(db, "a", {"schedule": "0 0 1 1 *"})
    lead(db)
    jobs.resume(db, "a")
    lead(db)
    assert [(run[0], run[4]) for run in runs(db)] == [("missed", 3), ("skipped", 2)]
    assert all(run[5].endswith("by alice; then the schedule was edited") for run in runs(db))


def test_an_edit_during_the_pause_records_the_old_schedule_s_slots(db: psycopg.Connection) -> None:
    add(db)
    lead(db)
    jobs.pause(db, "a", "incident 7")
    pass_time(db, 2 * 3600)
    jobs.update(db, "a", {"schedule": "0 0 1 1 *"})
    jobs.resume(db, "a", "pause")
    lead(db)
    ((state, slot, _, _, count, reason),) = runs(db)
    assert (state, slot, count) == ("skipped", hours(db, 1)[0], 2)
    assert reason.endswith("incident 7; then the schedule was edited")


def test_slots_after_ends_at_are_no_part_of_the_stretch(db: psycopg.Connection) -> None:
    add(db)
    lead(db)
    jobs.pause(db, "a")
    pass_time(db, 3 * 3600)
    jobs.update(db, "a", {"ends_at": hours(db, 2)[0]})
    jobs.resume(db, "a")
    lead(db)
    assert [run[:5] for run in runs(db)] == [("skipped", hours(db, 2)[0], *hours(db, 3)[:2], 2)]


def test_pausing_leaves_the_runs_alone(db: psycopg.Connection) -> None:
    add(db)
    run = jobs.trigger(db, "a")
    jobs.pause(db, "a")
    pass_time(db, 3 * 3600)
    lead(db)
    assert db.execute("SELECT id, state FROM pgsched.runs").fetchall() == [(run, "queued")]


def test_a_recorded_stretch_has_the_jobs_owner_and_max_attempts(db: psycopg.Connection) -> None:
    """A retry of the row then uses the job's own policies and rights."""
    add(db, kind="sql", task="SELECT 1", max_attempts=7)
    lead(db)
    jobs.pause(db, "a")
    pass_time(db, 3 * 3600)
    jobs.resume(db, "a")
    lead(db)
    assert db.execute("SELECT owner = current_user, max_attempts FROM pgsched.runs").fetchone() == (True, 7)


def test_bad_values_are_refused(db: psycopg.Connection) -> None:
    add(db)
    with pytest.raises(InputError, match='from: "noon" is not one of now, pause'):
        jobs.resume(db, "a", "noon")
    with pytest.raises(psycopg.errors.CheckViolation, match='resume_from: "noon" is not one of now, pause'):
        db.execute("UPDATE pgsched.jobs SET resume_from = 'noon'")
    with pytest.raises(NotFound):
        jobs.resume(db, "b", "pause")
