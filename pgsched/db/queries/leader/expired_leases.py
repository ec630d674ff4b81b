"""Expired leases: find claims whose lease has ended or is too long, and take them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgsched.db.arrays import literal
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.rows import fetch
from pgsched.db.statements import sql

CANCELED = "57014"  # SQLSTATE of a statement that statement_timeout ended


def lease_bounds(conn: Connection[Any]) -> tuple[float, float]:
    """Return the shortest and the longest lease of this fleet in seconds, 0 without workers."""
    (row,) = fetch(conn, "lease_longest")
    return row["shortest"] or 0.0, row["longest"] or 0.0


def find_bad_leases(
    conn: Connection[Any], n: int, before_s: float | None = None, *, long: bool = False
) -> tuple[list[int], list[int]]:
    """Find up to `n` running runs whose lease has expired, and with `long` also those whose lease is too long.

    Returns the ids of the expired ones, then those of the others. A lease is too long if it lasts longer than the
    worker's leases do: the clock was moved back. Reads every run that is queued or running.

    `before_s`: leases that had ended then, by the database's clock, in seconds since 1970; None: now
    """
    rows = fetch(conn, "lease_look", {"n": n, "before_s": before_s, "long": long})
    return [row["id"] for row in rows if row["expired"]], [row["id"] for row in rows if not row["expired"]]


def find_bad_leases_within(
    conn: Connection[Any], seconds: float, n: int, before_s: float | None, *, long: bool
) -> tuple[list[int], list[int]] | None:
    """Do what `find_bad_leases` does; return None where it takes longer than `seconds`."""
    try:
        with conn.transaction():
            conn.execute("SELECT set_config('statement_timeout', %s, true)", [f"{seconds * 1000:.0f}"])
            return find_bad_leases(conn, n, before_s, long=long)
    except DatabaseError as error:
        if error.sqlstate != CANCELED:
            raise
        return None


def shorten_leases(conn: Connection[Any], ids: Sequence[int]) -> int:
    """Shorten the leases of these runs that are too long to one lease from now; return how many were shortened."""
    return conn.execute(sql("lease_shorten"), {"ids": literal(ids)}).rowcount


def reap(
    conn: Connection[Any], ids: Sequence[int], crash_limit: int, before_s: float | None = None
) -> list[dict[str, Any]]:
    """Take back those of these claims whose lease had ended at `before_s` (as in `find_bad_leases`).

    For the columns see `reap` in sql/reaper.sql.

    `crash_limit`: a run ends as dead after this many attempts in a row that took their worker down
    """
    return fetch(conn, "reap", {"ids": literal(ids), "crash_limit": crash_limit, "before_s": before_s})


def note_lost(conn: Connection[Any], ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Record which tasks the workers of these reaped claims held; return (id, task, worker) of each run, by id."""
    return {row["id"]: row for row in fetch(conn, "lost_note", {"ids": literal(ids)})}
