"""The rule: a worker is there, and its jobs are declared, in one transaction; who changes any does so alone.

So whoever takes jobs away sees every process that declares them, also one that has come this instant. A process takes
jobs away only if no other of its app is there: others may be of another release, which declares more. What it leaves
the leader takes away when no process has declared it for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from pgsched.config import WITHDRAW_AFTER_S
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.declarations import HELD, Declaration, compare, declare_in_turn, remove_others
from pgsched.db.queries.runs import workers
from pgsched.db.queries.runs.workers import Registration
from pgsched.db.rows import fetch, value
from pgsched.db.statements import sql
from pgsched.errors import LockTimeout


def register(conn: Connection[Any], registration: Registration, *, again: bool = False) -> tuple[int, dict[str, str]]:
    """Write the worker's row and its app's jobs; returns its id, and what was done: name -> created, updated,
    unchanged, foreign, held (somebody has locked it), removed or left. All or nothing but for what is held.

    `again`: it is no new process, but one that the database had lost or given up: it only puts back the jobs that are
    gone, as others may be of a newer release by now. Raises PgschedError, or the driver's errors.
    """
    app, jobs = registration.app, registration.jobs
    if app is None or jobs is None:
        return workers.start(conn, registration), {}
    try:
        found = register_unchanged(conn, registration, app, jobs, again=again)
        return found or register_changed(conn, registration, app, jobs, again=again)
    except (psycopg.errors.LockNotAvailable, LockTimeout):  # somebody declares, or takes away, and waits himself
        return workers.start(conn, registration), dict.fromkeys((job.name for job in jobs), HELD)


def register_unchanged(
    conn: Connection[Any], registration: Registration, app: str, jobs: Sequence[Declaration], *, again: bool
) -> tuple[int, dict[str, str]] | None:
    """Where all jobs are as they are declared, nothing but the worker's row is written, and nobody waits for another.
    None: something is to be written."""
    with conn.transaction():
        locked = value(conn, "declare_lock_shared")
        done = compare(conn, jobs, app, update=not again)
        names = [job.name for job in jobs]
        if {*names} != {*done} or len(names) != len(done):
            return None
        left = remove_others(conn, app, names, remove=False)
        if left and registration.removes and not again and is_alone(conn, app):
            return None
        if not locked:  # another process is declaring, and may remove some of these jobs: look again later
            done = dict.fromkeys(names, HELD)
        return workers.start(conn, registration), done | left


def register_changed(
    conn: Connection[Any], registration: Registration, app: str, jobs: Sequence[Declaration], *, again: bool
) -> tuple[int, dict[str, str]]:
    """Write what differs."""
    with conn.transaction():
        locked = value(conn, "declare_lock")  # without the lock the worker starts all the same
        remove = locked and registration.removes and not again and is_alone(conn, app)
        done = declare_in_turn(conn, jobs, app, remove=remove, update=not again)
        return workers.start(conn, registration), done


def is_alone(conn: Connection[Any], app: str) -> bool:
    """Is no process of this app there that is registered, and is none missing that may come back?"""
    return not value(conn, "declare_others", {"app": app, "grace_s": WITHDRAW_AFTER_S})


def withdrawn(conn: Connection[Any], grace_s: float, n: int) -> list[Row]:
    """Up to `n` jobs (id, name, app) that no process of their app has declared for `grace_s` seconds, while one that
    says what it declares is at work."""
    return fetch(conn, "declare_withdrawn", {"grace_s": grace_s, "n": n})


def withdraw(conn: Connection[Any], grace_s: float, n: int) -> list[Row]:
    """Delete such jobs, in the caller's transaction; returns (name, app) of each. None while a process declares its."""
    locked = conn.execute(sql("declare_try_lock")).fetchone()
    if not locked or not locked[0]:
        return []
    # asked under the lock, with a snapshot that is younger: a process may just have declared one of them
    found = withdrawn(conn, grace_s, n)
    return fetch(conn, "declare_withdraw", {"ids": [row["id"] for row in found]})


def try_declare_lock(conn: Connection[Any]) -> bool:
    """Take the lock by which processes declare their jobs one after the other; False: another has it."""
    return bool(value(conn, "declare_try_lock"))
