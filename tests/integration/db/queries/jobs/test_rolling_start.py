"""Workers of an unchanged release start without a lock on any job; one job that somebody has locked stops no start."""

from __future__ import annotations

import os
from dataclasses import replace

import psycopg
import pytest

from pgsched import App
from pgsched.db.queries.jobs import declarations, registration
from pgsched.db.queries.jobs.registration import register
from pgsched.worker.registration import declare_again, locked_jobs, register_again
from tests.support.apps.releases import release
from tests.support.db.setting import Open, cut
from tests.support.fleet import one
from tests.support.releases import process

LOCKED = "SELECT count(*) FROM pgsched.jobs WHERE xmax <> 0"
NAMES = [f"job{n}" for n in range(40)]


def app(schedule: str = "@hourly", **changed: str) -> App:
    return release(App("shop"), **{name: changed.get(name, schedule) for name in NAMES})


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
    db.execute("VACUUM FREEZE pgsched.jobs")
    assert one(db, LOCKED) == 0
    register(starting, process(app()))
    assert one(db, LOCKED) == 0
    monkeypatch.setattr(registration, "find_unwritten", lambda *given, **more: {})
    monkeypatch.setattr(declarations, "find_unwritten", lambda *given, **more: {})
    register(starting, process(app()))
    assert one(db, LOCKED) == len(NAMES), "which is why they are compared first"


def test_only_what_differs_is_locked_and_written(db: psycopg.Connection) -> None:
    register(db, process(app()))
    db.execute("VACUUM FREEZE pgsched.jobs")
    before = dict(db.execute("SELECT name, xmin::text FROM pgsched.jobs").fetchall())
    done = register(db, process(app(job3="@daily", job9="@daily")))[1]
    assert [name for name, what in done.items() if what == "updated"] == ["job3", "job9"]
    after = dict(db.execute("SELECT name, xmin::text FROM pgsched.jobs").fetchall())
    assert {name for name in NAMES if before[name] != after[name]} == {"job3", "job9"}
    assert one(db, f"{LOCKED} AND name NOT IN ('job3', 'job9')") == 0


def test_a_job_that_somebody_has_locked_is_named_with_the_session_and_declared_later(
    db: psycopg.Connection, connect: Open
) -> None:
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


def test_very_many_jobs_that_somebody_has_locked_do_not_stop_a_start_for_long(
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


def test_who_cannot_declare_now_starts_all_the_same(db: psycopg.Connection, connect: Open) -> None:
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
def test_who_has_not_got_its_turn_takes_no_job_away(
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


def test_who_looks_while_somebody_declares_looks_again_later(db: psycopg.Connection, connect: Open) -> None:
    """It does not see what the other one takes away before that has committed."""
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
def test_who_starts_unchanged_while_jobs_are_taken_away_is_seen(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that writes nothing keeps others from taking its jobs away until its own row is there."""
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


def test_what_is_compared_is_what_would_be_written(db: psycopg.Connection) -> None:
    """Every column that code can declare, given and left out."""
    policies = {
        "priority": 2, "tags": ["a", "b"], "queue": "q", "overlap": "buffer_all", "max_buffer": 7, "jitter": "2 s",
        "timeout": "90 seconds", "max_attempts": 4, "backoff": "linear", "backoff_base": "0:00:07",
        "concurrency_key": "{x}", "keep": {"dead": "90 days"}, "start_deadline": "1 hour", "misfire_after": "5 min",
        "catch_up": "all", "description": "d", "max_runs": 5, "max_lateness": "1 min", "alert_after_failures": 3,
    }  # fmt: skip
    first = process(app())
    assert first.jobs is not None
    with_policies = replace(first, jobs=[replace(first.jobs[0], policies=policies), *first.jobs[1:]])
    register(db, with_policies)
    assert set(register(db, with_policies)[1].values()) == {"unchanged"}
    done = register(db, first)[1]
    assert [name for name, what in done.items() if what == "updated"] == ["job0"]
    assert set(register(db, first)[1].values()) == {"unchanged"}
