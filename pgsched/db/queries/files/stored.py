"""Read what a file of jobs may be about, and what files declare. Nothing is written here, but the name of an owner."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import raise_explained
from pgsched.db.queries.jobs.declarations import set_lock_timeout
from pgsched.db.queries.reports.live import database_now
from pgsched.db.rows import first_row, rows
from pgsched.errors import LockTimeout, NotPermitted

MOST_OTHER_JOBS = 100_000  # jobs beside the file's that are counted for collisions
TURN_WAIT = "25s"  # for another apply with the same owner; less than the limit of a statement (connect.py)
Pairs = Collection[tuple[str, str]]


@contextmanager
def one_moment(conn: Connection[Any]) -> Iterator[datetime]:
    """Let the block's statements see the database at one moment, and change nothing; yield the database's time."""
    with raise_explained(), conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield database_now(conn)


@contextmanager
def all_or_nothing(conn: Connection[Any]) -> Iterator[None]:
    """Make the changes of the block in one transaction. Raises PgschedError."""
    with raise_explained(), conn.transaction():
        yield


def owner_of_name(conn: Connection[Any], name: str) -> Row | None:
    """Return who may use the name of a file's owner: `file_owner` in sql/declarations.sql."""
    return first_row(conn, "file_owner", {"name": name})


def take_owner(conn: Connection[Any], name: str) -> Row:
    """Lock the name of a file's owner until the transaction ends; it belongs to the caller if it belongs to nobody.

    Waits while another apply has locked it. Raises LockTimeout where that takes too long, and NotPermitted where the
    name belongs to a role whose names the caller may not see.
    """
    (before,) = conn.execute("SELECT current_setting('lock_timeout')").fetchone()  # type: ignore[misc]
    set_lock_timeout(conn, TURN_WAIT)
    try:
        found = first_row(conn, "file_owner_lock", {"name": name})
        if found is None:
            rows(conn, "file_owner_add", {"name": name})
            found = first_row(conn, "file_owner_lock", {"name": name})
    except LockTimeout:
        raise LockTimeout(f'another apply with owner "{name}" has not ended for {TURN_WAIT}: try again') from None
    set_lock_timeout(conn, before)
    if found is None:
        raise NotPermitted(f'owner: "{name}" belongs to another role: use another name (--owner)')
    return found


def mark_applied(conn: Connection[Any], name: str) -> None:
    """Note that an apply changed something."""
    rows(conn, "file_owner_applied", {"name": name})


def declared_entries(conn: Connection[Any], owner: str, keys: Pairs) -> list[Row]:
    """Return which of these objects files declare, and all that this owner declares: `file_entries`."""
    what, names = [one for one, _ in keys], [name for _, name in keys]
    return rows(conn, "file_entries", {"owner": owner, "what": what, "names": names})


def all_entries(conn: Connection[Any]) -> list[Row]:
    """Return what all files declare: `file_entries_owned` in sql/declarations.sql."""
    return rows(conn, "file_entries_owned")


def stored_jobs(conn: Connection[Any], names: Iterable[str] | None) -> list[Row]:
    """Return the jobs of these names, None: all: `file_jobs` in sql/declarations.sql."""
    return rows(conn, "file_jobs", {"names": None if names is None else list(names)})


def parents_of_jobs(conn: Connection[Any], names: Iterable[str]) -> dict[str, list[str]]:
    """Return the jobs that these jobs wait for, and those before them, by name."""
    return {row["name"]: row["parents"] or [] for row in rows(conn, "file_parents", {"names": list(names)})}


def other_jobs(conn: Connection[Any], names: Iterable[str]) -> list[Row]:
    """Return the schedules of all jobs but these: `file_fleet` in sql/declarations.sql."""
    return rows(conn, "file_fleet", {"names": list(names), "n": MOST_OTHER_JOBS})


def users_of_calendars(conn: Connection[Any], calendars: Iterable[str], n: int) -> list[str]:
    """Return the names of jobs that use these calendars, at most `n`."""
    return [str(row["name"]) for row in rows(conn, "file_users", {"calendars": list(calendars), "n": n})]


def stored_settings(conn: Connection[Any]) -> list[Row]:
    """Return the settings that the caller may read: (what, name, declared_by, row as JSON)."""
    found = rows(conn, "file_settings")
    readable = first_row(conn, "file_readable")
    assert readable is not None
    statements = {"calendars": "file_calendars", "retention": "file_retention", "alerts": "file_alerts"}
    return found + [row for what, name in statements.items() if readable[what] for row in rows(conn, name)]


def job_errors(conn: Connection[Any], jobs: list[dict[str, Any]]) -> list[Row]:
    """Return what is wrong with jobs that are not written yet: (name, problem)."""
    return rows(conn, "file_job_errors", {"rows": Jsonb(jobs)})
