"""Locks for people: list them, show who holds one and who waits for it, and take one from its holders."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.core.text import did_you_mean
from pgsched.core.units import format_count
from pgsched.core.wording import format_short_duration
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.recipes import locks
from pgsched.db.queries.recipes.lock_lists import read_locks
from pgsched.db.queries.recipes.locks import Contender
from pgsched.db.queries.reports import name_hints
from pgsched.errors import NotFound

MOST_PLACES = 1000  # of one line
NOTE_LENGTH = 300  # how many characters of a note a person is shown


@dataclass(frozen=True, slots=True)
class LockView:
    """A lock, with its holders and those who wait for it, in their order.

    `row`: as `lock_list` in sql/locks.sql returns it. At most MOST_PLACES are read.
    """

    row: Row
    holders: list[Contender]
    waiting: list[Contender]


def list_locks(
    conn: Connection[Any],
    prefix: str = "",
    *,
    after: str = "",
    most: int,
    only_used: bool = True,
    kind: str | None = None,
) -> list[Row]:
    """Return locks in the order of their names, after a name, as far as this role may see them."""
    return read_locks(conn, prefix, after=after, most=most, only_used=only_used, kind=kind)


def show_lock(conn: Connection[Any], name: str) -> LockView:
    """Return one lock. Raises NotFound, with names that may have been meant, and NotPermitted."""
    line = locks.read_line(conn, name, MOST_PLACES, note_length=NOTE_LENGTH)
    found = read_locks(conn, name, most=1, only_used=False)  # of names that begin so, `name` itself is the first
    if not found or found[0]["name"] != name:
        hint = did_you_mean(name, name_hints.known_names(conn, "lock"))
        raise NotFound(f'there is no lock "{name}"{hint or "; `pgsched lock list --all` shows those that there are"}')
    return LockView(
        found[0], [one for one in line if one.fence is not None], [one for one in line if one.fence is None]
    )


def break_lock(conn: Connection[Any], name: str, fence: int | None = None) -> int:
    """Take a lock from its holders, or from the one with this fence; return how many had it.

    Raises NotFound where there is no such name, and NotPermitted.
    """
    if not (broken := locks.break_lock(conn, name, fence)):
        show_lock(conn, name)
    return broken


def describe_kind(row: Row) -> str:
    """Return what a lock is: `lock`, `election` or `semaphore of 5`."""
    return str(row["kind"]) if row["capacity"] is None else f"semaphore of {row['capacity']}"


def describe_holders(row: Row) -> str:
    """Return who holds a lock: the session of the oldest grant, and the number of others; `-` if there is none."""
    if not row["holders"]:
        return "-"
    return str(row["holder"]) + (f" +{row['holders'] - 1}" if row["holders"] > 1 else "")


def describe_waiting(row: Row, now: datetime) -> str:
    """Return how many wait for a lock, and for how long the first of them has waited."""
    if not row["waiting"]:
        return "-"
    return f"{row['waiting']}, for {format_short_duration((now - row['waiting_since']).total_seconds())}"


def describe_break(broken: int, name: str, fence: int | None) -> str:
    """Return what a break has done, as a sentence without a full stop."""
    if not broken:
        return f"no session holds {name}" + ("" if fence is None else f" with fence {fence}")
    return f"{name} was taken from {format_count(broken, 'holder')}"
