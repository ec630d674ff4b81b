"""What the tests of releases share: processes that are registered and no more, a leader, and minutes that pass."""

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
    """The names of all jobs."""
    return {name for (name,) in db.execute("SELECT name FROM pgsched.jobs").fetchall()}


def a_run_that_waits(db: psycopg.Connection, job: str) -> int:
    """A run of the job that starts tomorrow; its id."""
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
    """A leader; each call has it do all that it does once a minute."""
    leader = lead(db)

    def one_round() -> psycopg.Connection:
        retention.delete_other_rows(db, 7 * 86_400.0, 1000)
        duty_of(leader, DeclarationsDuty).period.set_due_at(0)
        leader.run_once()
        return db

    return one_round


def time_passes(db: psycopg.Connection, minutes: int, pid: int | None = None) -> None:
    """As if the processes that have stopped, or that of this pid, had last been seen so many minutes earlier."""
    db.execute(
        "UPDATE pgsched.workers SET seen_at = seen_at - make_interval(mins => %(m)s),"
        " stopped_at = stopped_at - make_interval(mins => %(m)s)"
        " WHERE CASE WHEN %(pid)s::int IS NULL THEN stopped_at IS NOT NULL ELSE pid = %(pid)s END",
        {"m": minutes, "pid": pid},
    )


def process(app: App, name: str = "host:1", lease_s: float = 30.0) -> Registration:
    """What a process of this release says of itself."""
    return Registration(name, "1", app.name, 1, None, ["task"], [], lease_s, app.jobs, app.named)


def begin(db: psycopg.Connection, *apps: App) -> list[int]:
    """Processes of these releases, one after the other; their ids."""
    return [register(db, process(app))[0] for app in apps]


def end(db: psycopg.Connection, *ids: int) -> None:
    """They sign off."""
    for worker_id in ids:
        workers.stop(db, worker_id, "host:1", stopped=True)
