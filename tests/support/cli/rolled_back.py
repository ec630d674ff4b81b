"""A database in which a release was rolled back, with runs that only that release can run."""

from __future__ import annotations

from typing import Any

import psycopg

from pgsched.worker.attempts.misfits import wait_for_newest_release


def take_release_back(db: psycopg.Connection[Any]) -> None:
    """Register two releases of task `t`, give all workers the older one, and let three runs wait for the newer one."""
    db.execute("INSERT INTO pgsched.tasks (app, task, release, owner, first_seen_at) SELECT 'a', 't', n, 'o',"
               " clock_timestamp() - make_interval(hours => 3 - n) FROM generate_series(1, 2) n")  # fmt: skip
    db.execute("UPDATE pgsched.workers SET app = 'a', releases = '{1}'")
    db.execute("INSERT INTO pgsched.runs (task, available_at) SELECT 't', now() + interval '20 s'"
               " FROM generate_series(1, 3)")  # fmt: skip
    db.execute("UPDATE pgsched.runs SET reason = %s", [wait_for_newest_release("'language' is unknown").error])
