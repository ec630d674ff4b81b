"""What the test kit does to a database. For tests only: it moves times, and creates and drops databases."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import errors
from psycopg import sql as composing
from psycopg.conninfo import make_conninfo

from pgsched.core.planning.catchup import Decision
from pgsched.core.planning.job_schedule import job_calendar, job_schedule
from pgsched.core.planning.slot_intervals import interval_of
from pgsched.db.connection.connect import Connection, connect
from pgsched.db.queries import testing
from pgsched.db.queries.reports.live import database_now
from pgsched.db.schema.migrate import upgrade
from pgsched.errors import InputError, NotPermitted, PgschedError

SLOTS = 1000
# the tables of a test's rows; what refers to a job goes with it
CLEARED = (
    "alerts", "attempts", "audit", "backfills", "dependencies", "jobs", "kept_keys", "run_logs", "runs", "set_aside",
)  # fmt: skip


def clock(conn: Connection[Any]) -> datetime:
    """Return the database's time."""
    return database_now(conn)


def travel(conn: Connection[Any], now: datetime, by: timedelta) -> int:
    """Move all times in the database by `by`, starting at `now`; return how many slots of jobs passed.

    Each of these slots gets a run, but not at an excluded time. Raises InputError for more than 1000 slots.
    """
    slot_count = 0
    for job in testing.shift_times(conn, by):
        schedule, excluded_times = job_schedule(job), job_calendar(job)
        for slot in schedule.between(now, now + by):
            if excluded_times.excluded(slot) is None:
                decision = interval_of(schedule, Decision(slot, "run", None, None, None, None))
                slot_count += testing.make_run_of_slot(conn, job["name"], decision)
            if slot_count > SLOTS:
                raise InputError(f"travel: more than {SLOTS} slots of jobs lie in {by}; travel in shorter steps")
    return slot_count


def delete_all(conn: Connection[Any]) -> None:
    """Delete all jobs and runs, and what belongs to them, of a database that only tests use."""
    tables = [composing.Identifier("pgsched", name) for name in CLEARED]
    conn.execute(composing.SQL("TRUNCATE {} CASCADE").format(composing.SQL(", ").join(tables)))


@contextmanager
def fresh_database(
    server_dsn: str, template: str | None = None, prepare: Callable[[Connection[Any]], object] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the name and DSN of a new database, and drop it after the block.

    With a template, the database is its copy; without one, it is created and migrated.
    `prepare`: is called with a connection to the new database, and committed. It makes what is not pgsched's.

    Raises NotPermitted if the role may not create databases; PgschedError if the template is in use, or for what makes
    a server unreachable.
    """
    name = f"pgsched_test_{uuid.uuid4().hex[:12]}"
    new, old = composing.Identifier(name), composing.Identifier(template or "template0")
    with connect(server_dsn, purpose="testing") as conn:
        try:
            conn.execute(composing.SQL("CREATE DATABASE {} TEMPLATE {}").format(new, old))
        except errors.InsufficientPrivilege as error:
            raise NotPermitted(
                f"role {conn.info.user!r} may not create databases for tests: ALTER ROLE {conn.info.user} CREATEDB, or"
                " name a role that may"
            ) from error
        except errors.ObjectInUse as error:
            raise PgschedError(
                "the template of the tests' databases is in use, so it cannot be copied: close every connection that"
                " pgsched_prepare opened by itself (for example engine.dispose())"
            ) from error
        try:
            dsn = make_conninfo(server_dsn, dbname=name)
            if template is None:
                upgrade(dsn)
            if prepare is not None:
                with psycopg.connect(dsn) as own:
                    prepare(own)
            yield name, dsn
        finally:
            conn.execute(composing.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(new))
