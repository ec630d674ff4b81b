"""Claims that are not believed any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgsched.db.arrays import literal
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.rows import fetch
from pgsched.db.statements import sql

CANCELED = "57014"  # by statement_timeout


def leases(conn: Connection[Any]) -> tuple[float, float]:
    """The shortest and the longest lease of this fleet in seconds, 0 without workers."""
    (row,) = fetch(conn, "lease_longest")
    return row["shortest"] or 0.0, row["longest"] or 0.0


def astray(
    conn: Connection[Any], n: int, before_s: float | None = None, *, long: bool = False
) -> tuple[list[int], list[int]]:
    """Up to `n` running runs: those whose lease had ended at `before_s` (database's clock, since 1970; None: now), and
    those whose lease is too long, if they are asked for. Reads all that is queued or running."""
    rows = fetch(conn, "lease_look", {"n": n, "before_s": before_s, "long": long})
    return [row["id"] for row in rows if row["expired"]], [row["id"] for row in rows if not row["expired"]]


def astray_within(
    conn: Connection[Any], seconds: float, n: int, before_s: float | None, *, long: bool
) -> tuple[list[int], list[int]] | None:
    """The same; None if it takes longer than so many seconds."""
    try:
        with conn.transaction():
            conn.execute("SELECT set_config('statement_timeout', %s, true)", [f"{seconds * 1000:.0f}"])
            return astray(conn, n, before_s, long=long)
    except DatabaseError as error:
        if error.sqlstate != CANCELED:
            raise
        return None


def shorten_leases(conn: Connection[Any], ids: Sequence[int]) -> int:
    """None of these claims is believed for longer than a lease from now; returns how many were."""
    return conn.execute(sql("lease_shorten"), {"ids": literal(ids)}).rowcount


def reap(
    conn: Connection[Any], ids: Sequence[int], crash_limit: int, before_s: float | None = None
) -> list[dict[str, Any]]:
    """Take back those of these claims whose lease had ended at `before_s` (as in `astray`); for the columns
    see `reap` in sql/reaper.sql."""
    return fetch(conn, "reap", {"ids": literal(ids), "crash_limit": crash_limit, "before_s": before_s})


def note_lost(conn: Connection[Any], ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Note what the workers of these claims, which were just taken back, have held: (task, worker) of each run."""
    return {row["id"]: row for row in fetch(conn, "lost_note", {"ids": literal(ids)})}
