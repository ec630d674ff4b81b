"""What a file owns is rows, not names: entries of what is gone own nothing that is made later."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from pgsched.errors import NotOwned
from pgsched.services.jobs import job_changes
from pgsched.services.jobs_file.planning import Options, plan
from tests.support.files.applies import actions, apply, column
from tests.support.files.jobs_files import file_of

pytestmark = pytest.mark.pg14
OPS = Options(owner="ops")
ENTRIES = "SELECT what || ' ' || name FROM pgsched.file_entries ORDER BY 1"


def end_once(db: psycopg.Connection[Any], name: str) -> None:
    """Let a job that runs once be deleted as the leader does it when its run has succeeded."""
    db.execute("SELECT set_config('pgsched.ticks', 'on', false)")
    db.execute("UPDATE pgsched.jobs SET next_run_at = NULL WHERE name = %s", [name])
    db.execute("DELETE FROM pgsched.jobs WHERE name = %s", [name])
    db.execute("SELECT set_config('pgsched.ticks', 'off', false)")


def test_a_job_of_the_name_of_one_that_has_deleted_itself_is_not_the_file_s(db: psycopg.Connection[Any]) -> None:
    text = "jobs: {m: {kind: sql, task: SELECT 1, delete_after_run: true}}"
    apply(db, text)
    end_once(db, "m")
    jobs.add(db, {"name": "m", "task": "t", "schedule": "@daily"})
    with pytest.raises(NotOwned, match="job m: it exists, and no file declares it"):
        apply(db, text)
    assert apply(db, "jobs: {}", prune=True).changes == ()


def test_an_entry_outlives_renames_of_other_jobs(db: psycopg.Connection[Any]) -> None:
    text = "jobs: {m: {kind: sql, task: SELECT 1, delete_after_run: true}}"
    apply(db, text)
    end_once(db, "m")
    jobs.add(db, {"name": "other", "task": "t"})
    for before, after in (("other", "m"), ("m", "other")):
        db.execute("UPDATE pgsched.jobs SET name = %s WHERE name = %s", [after, before])
    assert column(db, ENTRIES) == ["done m"]
    assert apply(db, text).changes == ()


def test_entries_go_with_what_people_remove(db: psycopg.Connection[Any]) -> None:
    text = "queues: {q: {fair: true}}\nlimits: {l: {concurrency: 1}}\npauses: [{what: queue, name: q}, {what: all}]"
    apply(db, text)
    for table in ("queues", "limits", "pauses"):
        db.execute(f"DELETE FROM pgsched.{table}".encode())
    assert column(db, ENTRIES) == []
    db.execute("INSERT INTO pgsched.limits (name, concurrency, declared_by) VALUES ('l', 3, 'shop')")
    with pytest.raises(NotOwned, match="limit l: the code of shop declares it"):
        apply(db, text, adopt=True)


def test_an_entry_of_a_row_that_is_gone_owns_no_other(db: psycopg.Connection[Any]) -> None:
    """Such as one that was added while another session deleted the job."""
    text = "jobs: {n: {task: t}}\ncalendars: {c: {}}"
    apply(db, text)
    for table in ("jobs", "calendars"):
        db.execute(f"ALTER TABLE pgsched.{table} DISABLE TRIGGER g_file_entries; DELETE FROM pgsched.{table}".encode())
        db.execute(f"ALTER TABLE pgsched.{table} ENABLE TRIGGER g_file_entries".encode())
    jobs.add(db, {"name": "n", "task": "by hand"})
    db.execute("INSERT INTO pgsched.calendars (name, description) VALUES ('c', 'by hand')")
    assert actions(plan(db, file_of(text), OPS).difference) == ["refuse n", "refuse c"]
    assert len(apply(db, text, adopt=True).changes) == 2
    assert actions(apply(db, "jobs: {n: {task: u}}", prune=True)) == ["change n", "remove c"]


def test_what_a_file_says_about_mode_and_pause_is_kept_and_said(db: psycopg.Connection[Any]) -> None:
    shadow = "jobs: {n: {task: t, schedule: '@daily', mode: shadow}}"
    apply(db, shadow)
    note = 'the file of owner "ops" declares mode of job n: the next apply sets it back, so change it in the file too'
    assert job_changes.set_mode(db, "n", "run")["notes"] == [note]
    assert job_changes.pause(db, "n")["notes"] == job_changes.resume(db, "n")["notes"] == []
    assert actions(apply(db, shadow)) == ["change n"]
    assert apply(db, shadow.replace("mode: shadow", "paused: false")).changes == ()
    assert column(db, "SELECT mode FROM pgsched.jobs") == ["shadow"]
    assert job_changes.set_mode(db, "n", "run")["notes"] == []
    assert len(job_changes.pause(db, "n")["notes"]) == len(job_changes.resume(db, "n")["notes"]) == 1


def test_a_name_of_a_role_that_is_gone_belongs_to_nobody(db: psycopg.Connection[Any]) -> None:
    apply(db, "jobs: {n: {task: t}}")
    db.execute("UPDATE pgsched.file_owners SET role = 'nobody_has_this'")
    assert actions(apply(db, "jobs: {n: {task: u}}")) == ["change n"]


def test_the_end_of_a_queue_ends_no_entry_of_a_name_without_its_spaces(db: psycopg.Connection[Any]) -> None:
    apply(db, "queues: {q: {fair: true}}\npauses: [{what: queue, name: q}]")
    db.execute("INSERT INTO pgsched.queues (name) VALUES (' q ')")
    db.execute("INSERT INTO pgsched.pauses (what, name) VALUES ('queue', 'q ')")
    db.execute("DELETE FROM pgsched.queues WHERE name = ' q '")
    db.execute("DELETE FROM pgsched.pauses WHERE name = 'q '")
    assert column(db, ENTRIES) == ["pause queue q", "queue q"]
