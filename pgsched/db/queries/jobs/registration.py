"""Registration of a worker with the declaration of its app's jobs, and removal of jobs that are no longer declared.

Invariant: a worker's row and its declared jobs are written in one transaction, and processes that change declared jobs
take turns. So a process that removes jobs sees every process that declares them, also one that has just started.

A process removes jobs only if no other process of its app is there: others may run another release, which declares
more. The leader removes the rest when no process has declared them for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from pgsched.config import WITHDRAW_AFTER_S
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.declarations import LOCKED, Declaration, declare_in_turn, find_unwritten, remove_others
from pgsched.db.queries.runs import tasks, workers
from pgsched.db.queries.runs.workers import Registration
from pgsched.db.rows import fetch, value
from pgsched.db.statements import sql
from pgsched.errors import LockTimeout

PREVIEW_WAIT_S = 0.05  # for rows that another session has locked


def register(conn: Connection[Any], registration: Registration, *, again: bool = False) -> tuple[int, dict[str, str]]:
    """Write the worker's row and its app's jobs; return its id, and what was done with each job, by name.

    The results are those of `declare`. Except for held jobs, all is written together or not at all.

    `again`: the process registers once more, after the database had lost its row or given it up. Then it only restores
      jobs that are gone: other processes may be of a newer release by now.

    Raises PgschedError, or the driver's errors.
    """
    app, jobs = registration.app, registration.jobs
    if app is None or jobs is None:
        return workers.insert_worker(conn, registration), {}
    try:
        found = register_unchanged(conn, registration, app, jobs, again=again)
        return found or register_changed(conn, registration, app, jobs, again=again)
    except (psycopg.errors.LockNotAvailable, LockTimeout):  # another process is declaring, and waits itself
        return workers.insert_worker(conn, registration), dict.fromkeys((job.name for job in jobs), LOCKED)


def register_unchanged(
    conn: Connection[Any], registration: Registration, app: str, jobs: Sequence[Declaration], *, again: bool
) -> tuple[int, dict[str, str]] | None:
    """Register where all jobs are as declared: write only the worker's row, and wait for no other process.

    Returns None, and writes nothing, where a job has to be written or removed.
    """
    with conn.transaction():
        locked = value(conn, "declare_lock_shared")
        done = find_unwritten(conn, jobs, app, update=not again)
        names = [job.name for job in jobs]
        if {*names} != {*done} or len(names) != len(done):
            return None
        left = remove_others(conn, app, names, remove=False)
        if left and not again and is_alone(conn, app):
            return None
        if not locked:  # another process is declaring and may remove some of these jobs: the caller looks again later
            done = dict.fromkeys(names, LOCKED)
        return workers.insert_worker(conn, registration), done | left


def register_changed(
    conn: Connection[Any], registration: Registration, app: str, jobs: Sequence[Declaration], *, again: bool
) -> tuple[int, dict[str, str]]:
    """Register, and write the jobs that differ from their declarations."""
    with conn.transaction():
        locked = value(conn, "declare_lock")  # the worker starts without the lock as well, but removes nothing then
        remove = locked and not again and is_alone(conn, app)
        done = declare_in_turn(conn, jobs, app, remove=remove, update=not again)
        return workers.insert_worker(conn, registration), done


def preview_registration(
    conn: Connection[Any], app: str, jobs: Sequence[Declaration], releases: Sequence[tasks.Release]
) -> tuple[str | None, dict[str, str]]:
    """Return the role that owns the app if it is another one, and what a registration would do with each job, by name.

    Nothing is written: the transaction is rolled back. Raises PgschedError, or the driver's errors.
    """
    with conn.transaction(force_rollback=True):
        owner = tasks.register(conn, app, releases)
        return owner, declare_in_turn(conn, jobs, app, remove=False, update=True, wait_s=PREVIEW_WAIT_S)


def is_alone(conn: Connection[Any], app: str) -> bool:
    """Check whether no process of this app is registered, and none that is missing may come back."""
    return not value(conn, "declare_others", {"app": app, "grace_s": WITHDRAW_AFTER_S})


def find_undeclared(conn: Connection[Any], grace_s: float, n: int) -> list[Row]:
    """Return up to `n` jobs (id, name, app) that no process of their app has declared for `grace_s` seconds.

    Only of apps that have a live process, and whose processes all state what they declare.
    """
    return fetch(conn, "declare_withdrawn", {"grace_s": grace_s, "n": n})


def delete_undeclared(conn: Connection[Any], grace_s: float, n: int) -> list[Row]:
    """Delete up to `n` jobs that `find_undeclared` finds, in the caller's transaction; return (name, app) of each.

    Deletes nothing while a process is declaring its jobs.
    """
    locked = conn.execute(sql("declare_try_lock")).fetchone()
    if not locked or not locked[0]:
        return []
    # read under the lock, with a newer snapshot: a process may just have declared one of them
    found = find_undeclared(conn, grace_s, n)
    return fetch(conn, "declare_withdraw", {"ids": [row["id"] for row in found]})


def try_declare_lock(conn: Connection[Any]) -> bool:
    """Take the lock under which processes declare jobs in turn; return False, without a wait, if another has it."""
    return bool(value(conn, "declare_try_lock"))
