"""Jobs whose slots wait for slots of other jobs, and what the leader makes of them."""

from __future__ import annotations

import math
from typing import Any

import psycopg

from pgsched.db.queries.leader import ticks
from pgsched.leader.dependents import decide_dependencies
from pgsched.leader.ticker import tick
from tests.support.db.setting import put_back


def add_job(db: psycopg.Connection, name: str, *after: str, schedule: str = "@every 1s", **columns: Any) -> int:
    given = {"overlap": "allow", **columns}
    names = "".join(f", {column}" for column in given)
    row = db.execute(
        f"INSERT INTO pgsched.jobs (name, schedule, task, after_jobs{names}) VALUES (%s, %s, 't',"
        f" (SELECT array_agg(id) FROM pgsched.jobs WHERE name = ANY (%s)){', %s' * len(given)}) RETURNING id",
        [name, schedule, list(after), *given.values()],
    ).fetchone()
    assert row is not None
    return int(row[0])


def decide(db: psycopg.Connection, seconds: int = 1) -> None:
    """Decide the slots of the last seconds of every job."""
    put_back(db, seconds)
    lead(db)


def lead(db: psycopg.Connection) -> None:
    """Decide due slots and dependencies, and admit runs, three times."""
    for _ in range(3):
        with db.transaction():
            tick(db, 5000)
            decide_dependencies(db, 5000)
            ticks.admit(db, 5000)


def runs(db: psycopg.Connection, name: str) -> list[tuple[Any, ...]]:
    """Return (state, reason) of the slots of a job, the oldest first."""
    return db.execute(
        "SELECT r.state, r.reason FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id WHERE j.name = %s"
        " ORDER BY r.scheduled_at",
        [name],
    ).fetchall()


def end(db: psycopg.Connection, name: str, state: str = "succeeded") -> None:
    """End the oldest unfinished slot of a job, and let the leader work."""
    db.execute(
        "UPDATE pgsched.runs SET state = %s, finished_at = now() WHERE id = (SELECT r.id FROM pgsched.runs r"
        " JOIN pgsched.jobs j ON j.id = r.job_id WHERE j.name = %s AND r.phase < 3 ORDER BY r.scheduled_at LIMIT 1)",
        [state, name],
    )
    lead(db)


def add_slot(db: psycopg.Connection, name: str, hour: int, state: str = "succeeded", **columns: Any) -> int:
    """Add a run of a job for the slot at this hour of 2026-05-01; return its id."""
    given = {"origin": "schedule", **columns}
    names = "".join(f", {column}" for column in given)
    row = db.execute(
        f"INSERT INTO pgsched.runs (job_id, scheduled_at, state, finished_at, task{names})"
        " SELECT id, timestamptz '2026-05-01Z' + make_interval(hours => %s), %s,"
        f" CASE WHEN %s NOT IN ('queued', 'waiting') THEN now() END, 't'{', %s' * len(given)}"
        " FROM pgsched.jobs WHERE name = %s RETURNING id",
        [hour, state, state, *given.values(), name],
    ).fetchone()
    assert row is not None
    return int(row[0])


def hold_slot(db: psycopg.Connection, name: str, hour: int, **columns: Any) -> int:
    """Add a slot of a job that waits for slots of other jobs, as a tick does; return its id."""
    run_id = add_slot(db, name, hour, "waiting", **columns)
    db.execute(
        "UPDATE pgsched.runs r SET available_at = '8998-01-01Z',"
        " options = pgsched.held_options(j, r.scheduled_at, false)"
        " FROM pgsched.jobs j WHERE j.id = r.job_id AND r.id = %s",
        [run_id],
    )
    return run_id


def decide_held(db: psycopg.Connection) -> None:
    """Decide dependencies, without a tick."""
    for _ in range(2):
        with db.transaction():
            decide_dependencies(db, 5000, longest_s=math.inf)


def told(db: psycopg.Connection, run_id: int) -> tuple[Any, ...]:
    """Return (state, reason) of a run."""
    row = db.execute("SELECT state, reason FROM pgsched.runs WHERE id = %s", [run_id]).fetchone()
    assert row is not None
    return row
