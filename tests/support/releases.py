"""Helpers for tests of releases: processes that are only registered, a leader, and time that passes."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from pgsched import App
from pgsched.db.queries.jobs.registration import register
from pgsched.db.queries.leader import retention
from pgsched.db.queries.runs import workers
from pgsched.db.queries.runs.workers import Registration
from pgsched.leader.duties.housekeeping import DeclarationsDuty
from tests.support.db.leading import duty_of, lead
from tests.support.fleet import one


def declared(db: psycopg.Connection) -> set[str]:
    """Return the names of all jobs."""
    return {name for (name,) in db.execute("SELECT name FROM pgsched.jobs").fetchall()}


def a_run_that_waits(db: psycopg.Connection, job: str) -> int:
    """Add a run of the job that is scheduled for tomorrow; return its id."""
    return int(
        one(
            db,
            "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, available_at)"
            " SELECT id, '2020-01-01Z', task, 'scheduled', clock_timestamp() + interval '1 day' FROM pgsched.jobs"
            " WHERE name = %s RETURNING id",
            job,
        )
    )


def state_of(db: psycopg.Connection, run: int) -> str:
    return str(one(db, "SELECT state FROM pgsched.runs WHERE id = %s", run))


def rounds(db: psycopg.Connection) -> Callable[[], psycopg.Connection]:
    """Return a function that lets a leader do once what it does every minute."""
    leader = lead(db)

    def one_round() -> psycopg.Connection:
        retention.delete_other_rows(db, 7 * 86_400.0, 1000)
        duty_of(leader, DeclarationsDuty).period.set_due_at(0)
        leader.run_once()
        return db

    return one_round


def time_passes(db: psycopg.Connection, minutes: int, pid: int | None = None) -> None:
    """Move back when processes were last seen or stopped: the one with this pid; without a pid, all stopped ones."""
    db.execute(
        "UPDATE pgsched.workers SET seen_at = seen_at - make_interval(mins => %(m)s),"
        " stopped_at = stopped_at - make_interval(mins => %(m)s)"
        " WHERE CASE WHEN %(pid)s::int IS NULL THEN stopped_at IS NOT NULL ELSE pid = %(pid)s END",
        {"m": minutes, "pid": pid},
    )


def process(app: App, name: str = "host:1", lease_s: float = 30.0) -> Registration:
    """Return the registration of a process of this release."""
    return Registration(name, "1", app.name, 1, None, ["task"], [], lease_s, app.declared_jobs)


def begin(db: psycopg.Connection, *apps: App) -> list[int]:
    """Register a process of each of these releases, in this order; return their ids."""
    return [register(db, process(app))[0] for app in apps]


def end(db: psycopg.Connection, *ids: int) -> None:
    """Sign these processes off."""
    for worker_id in ids:
        workers.stop(db, worker_id, "host:1", stopped=True)
