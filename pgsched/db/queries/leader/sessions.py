"""End sessions that were not renewed, and delete names of locks and roots of the store that nobody uses any more.

Invariant: no statement waits for a lock. What somebody has locked is left for the next time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, value


class SessionsOver(NamedTuple):
    """Sessions that are over. `ids`: in ascending order. `some`: there are sessions at all, over or not."""

    ids: list[int]
    some: bool


def find_sessions_over(conn: Connection[Any], after: int, n: int, excluded_ids: Iterable[int] = ()) -> SessionsOver:
    """Find the next `n` sessions behind the id `after` that were not renewed, or were ended and have something left."""
    (row,) = fetch(conn, "sessions_over", {"after": after, "n": n, "aside": plain(excluded_ids)})
    return SessionsOver(row["over"], row["some"])


def end_sessions(conn: Connection[Any], ids: Iterable[int]) -> int:
    """End those of these sessions that are over, and give on what they had; return how many were dealt with.

    One call gives on at most 1,000 locks and deletes at most 1,000 keys. A session that has more, or of which something
    is locked, is found again.
    """
    return int(value(conn, "sessions_ended", {"ids": plain(ids)}))


def prune_locks(conn: Connection[Any], after: str, n: int) -> str | None:
    """Delete unused ones of the next `n` names of locks; return the last name read, None after the last of all."""
    found: str | None = value(conn, "locks_pruned", {"after": after, "n": n})
    return found


def prune_roots(conn: Connection[Any], after: str, n: int) -> str | None:
    """Delete unused ones of the next `n` roots of the store; return the last root read, None after the last of all."""
    found: str | None = value(conn, "store_roots_pruned", {"after": after, "n": n})
    return found
