"""Workers of an unchanged release start without a lock on any job, and a locked job stops no start."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from pgsched import App
from pgsched.app.declarations import POLICIES
from pgsched.db.queries.jobs import declarations, registration
from pgsched.db.queries.jobs.registration import register
from pgsched.worker.registration import declare_again, locked_jobs, register_again
from tests.support.apps.releases import release
from tests.support.db.setting import Open, cut
from tests.support.fleet import one
from tests.support.releases import process
from tests.support.waiting import wait_until

LOCKED = "SELECT count(*) FROM pgsched.jobs WHERE xmax <> 0"
NAMES = [f"job{n}" for n in range(40)]


def app(schedule: str = "@hourly", **changed: str) -> App:
    return release(App("shop"), **{name: changed.get(name, schedule) for name in NAMES})


def forget_locks(db: psycopg.Connection) -> bool:
    """Freeze the rows, which an autovacuum at that moment may prevent; return whether none looks locked now."""
    db.execute("VACUUM FREEZE pgsched.jobs")
    return bool(one(db, LOCKED) == 0)


@pytest.mark.long
def test_the_start_of_an_unchanged_release_locks_no_job(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(register(db, process(app()))[1].values()) == {"created"}
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.jobs WHERE name = 'job7' FOR UPDATE")
    other = connect(autocommit=False)
    other.execute("SELECT pgsched.share_declare_turn()")
    starting = connect(options="-c lock_timeout=1s")
    assert set(register(starting, process(app()))[1].values()) == {"unchanged"}, "nobody is waited for"
    person.rollback()
    other.rollback()
    wait_until(lambda: forget_locks(db), what="no statement of the server still sees the lock")
    register(starting, process(app()))
    assert one(db, LOCKED) == 0
    monkeypatch.setattr(registration, "find_unwritten", lambda *given, **more: {})
    monkeypatch.setattr(declarations, "find_unwritten", lambda *given, **more: {})
    register(starting, process(app()))
    assert one(db, LOCKED) == len(NAMES), "which is why they are compared first"


def test_only_jobs_that_differ_are_locked_and_written(db: psycopg.Connection) -> None:
    register(db, process(app()))
    wait_until(lambda: forget_locks(db), what="no statement of the server still sees a lock")
    before = dict(db.execute("SELECT name, xmin::text FROM pgsched.jobs").fetchall())
    done = register(db, process(app(job3="@daily", job9="@daily")))[1]
    assert [name for name, what in done.items() if what == "updated"] == ["job3", "job9"]
    after = dict(db.execute("SELECT name, xmin::text FROM pgsched.jobs").fetchall())
    assert {name for name in NAMES if before[name] != after[name]} == {"job3", "job9"}
    assert one(db, f"{LOCKED} AND name NOT IN ('job3', 'job9')") == 0


def test_a_locked_job_is_reported_with_its_session_and_declared_later(db: psycopg.Connection, connect: Open) -> None:
    register(db, process(app()))
    person = connect(autocommit=False)
    person.execute("UPDATE pgsched.jobs SET description = 'x' WHERE name = 'job7'")
    newer = process(app(job7="@daily", job8="@daily"))
    worker, done = register(db, newer)
    assert locked_jobs(done) == {"job7": f"held by session {person.info.backend_pid}"}
    assert done["job8"] == "updated"
    assert one(db, "SELECT pid FROM pgsched.workers WHERE id = %s", worker) == os.getpid(), "it starts all the same"
    assert not declare_again(db, newer)
    person.rollback()
    assert declare_again(db, newer)
    assert one(db, "SELECT schedule FROM pgsched.jobs WHERE name = 'job7'") == "@daily"


@pytest.mark.long
def test_many_locked_jobs_delay_a_start_only_briefly(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(db, process(app()))
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.jobs FOR UPDATE")
    waits: list[str] = []
    really = declarations.set_lock_timeout

    def told(conn: psycopg.Connection, setting: str) -> None:
        waits.append(setting)
        really(conn, setting)

    monkeypatch.setattr(declarations, "set_lock_timeout", told)
    monkeypatch.setattr(declarations, "LOCK_WAIT_S", 0.2)
    done = register(db, process(app("@daily")))[1]
    assert len(locked_jobs(done)) == len(NAMES)
    assert waits[1] == "10ms", "what the first one has used up, the others have not"


@pytest.mark.long
def test_a_worker_that_cannot_declare_now_still_starts(db: psycopg.Connection, connect: Open) -> None:
    somebody = connect(autocommit=False)
    somebody.execute("SELECT pgsched.take_declare_turn()")
    somebody.execute("LOCK TABLE pgsched.jobs IN ACCESS EXCLUSIVE MODE")
    starting = connect(options="-c lock_timeout=100ms")
    worker, done = register(starting, process(app()))
    assert set(done.values()) == {"held"}
    assert one(db, "SELECT count(*) FROM pgsched.workers WHERE id = %s", worker) == 1
    assert not declare_again(starting, process(app()))
    somebody.rollback()
    assert declare_again(starting, process(app()))
    assert one(db, "SELECT count(*) FROM pgsched.jobs") == len(NAMES)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_process_without_its_turn_to_declare_removes_no_job(
    guarded: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = process(release(App("shop"), a="@daily", b="@daily")), process(release(App("shop"), b="@hourly"))
    assert old.jobs and new.jobs
    register(db, old)
    db.execute("DELETE FROM pgsched.workers")
    db.execute("CREATE TEMP SEQUENCE asked")
    got = "false" if guarded else "true"
    cut(monkeypatch, "declare_lock", "pgsched.take_declare_turn()", f"nextval('pg_temp.asked') > 0 AND {got}")
    assert register(db, new)[1] == {"b": "updated", "a": "left" if guarded else "removed"}
    assert one(db, "SELECT last_value FROM pg_temp.asked") == 1, "it waits for it once"
    declarations.declare(db, old.jobs, "shop", remove=False)
    assert declarations.declare(db, new.jobs, "shop")["a"] == ("left" if guarded else "removed")


@pytest.mark.long
def test_a_start_during_another_declaration_looks_again_later(db: psycopg.Connection, connect: Open) -> None:
    """The start does not see what the other process removes before that process commits."""
    register(db, process(app()))
    somebody = connect(autocommit=False)
    somebody.execute("SELECT pgsched.take_declare_turn()")
    somebody.execute("DELETE FROM pgsched.jobs WHERE name = 'job7'")
    assert set(register(connect(), process(app()))[1].values()) == {"held"}
    worker, whole = register_again(connect(), process(app()))
    assert not whole and one(db, "SELECT count(*) FROM pgsched.workers WHERE id = %s", worker) == 1
    somebody.commit()
    assert declare_again(db, process(app("@daily")), update=False)
    schedules = "SELECT array_agg(schedule ORDER BY id) FROM pgsched.jobs WHERE name IN ('job7', 'job8')"
    assert one(db, schedules) == ["@hourly", "@daily"], "it is put back; the others may be of a newer release"


@pytest.mark.parametrize("guarded", [True, False])
def test_an_unchanged_start_is_seen_by_processes_that_remove_jobs(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that writes no job keeps other processes from removing its jobs until its own row is there."""
    if not guarded:
        cut(
            monkeypatch,
            "declare_lock_shared",
            "pgsched.share_declare_turn()",
            "true",
        )
    register(db, process(app()))
    starting, leader = connect(autocommit=False), connect()
    starting.execute("SELECT")
    register(starting, process(app()))
    with leader.transaction():
        (locked,) = leader.execute(registration.sql("declare_try_lock")).fetchone()  # type: ignore[misc]
    assert locked is not guarded


SAMPLES = {
    "description": "d", "queue": "q", "priority": 2, "tags": ["a", "b"], "starts_at": datetime(2030, 1, 1, tzinfo=UTC),
    "ends_at": datetime(2040, 1, 1, tzinfo=UTC), "max_runs": 5, "jitter": timedelta(seconds=2), "overlap": "buffer_all",
    "max_buffer": 7, "retry_within": timedelta(minutes=3), "misfire_after": timedelta(minutes=5), "catch_up": "all",
    "max_catch_up": 9, "catch_up_window": timedelta(hours=5), "start_deadline": timedelta(hours=1), "max_attempts": 4,
    "timeout": timedelta(seconds=90), "kill_after": timedelta(seconds=3), "backoff": "linear",
    "backoff_base": timedelta(seconds=7), "backoff_max": timedelta(hours=2), "backoff_jitter": 0.5,
    "concurrency_key": "{x}", "concurrency_limit": 3, "after_jobs": ["job1"], "paused": True,
    "keep": {"dead": "90 days"}, "alert_after_failures": 3, "max_lateness": timedelta(minutes=1),
    "max_duration": timedelta(minutes=2), "expect_every": timedelta(hours=3), "finish_by": timedelta(hours=1),
    "mode": "shadow", "on_excluded": "previous", "after_match": "latest", "pause_after_failures": 3,
    "alert_to": ["ops"], "ping_url": "https://example.org/", "calendar": "holidays",
}  # fmt: skip


@pytest.mark.long
def test_the_comparison_sees_what_would_be_written(db: psycopg.Connection) -> None:
    """A declaration first sets a policy column, and then leaves it out."""
    db.execute("INSERT INTO pgsched.calendars (name) VALUES ('holidays')")
    without = process(release(App("shop"), job0="@hourly", job1="@daily"))
    assert without.jobs is not None
    register(db, without)
    for column, value in SAMPLES.items():
        changed = replace(without.jobs[0], policies={column: value})
        with_policy = replace(without, jobs=[changed, *without.jobs[1:]])
        # Pause and mode are the operator's: a declaration without one leaves it.
        after = "unchanged" if column in ("paused", "mode") else "updated"
        wanted = ["updated", "unchanged", after, "unchanged"]
        found = [register(db, declared)[1] for declared in (with_policy, with_policy, without, without)]
        assert found == [{"job0": what, "job1": "unchanged"} for what in wanted], column


def test_every_policy_is_compared() -> None:
    once = {"delete_after_run"}  # is for jobs that run once
    assert SAMPLES.keys() == POLICIES.keys() - once
