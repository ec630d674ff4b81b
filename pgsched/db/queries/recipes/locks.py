"""Sessions and locks: open, renew and end a session; acquire, release and assert a lock; read its line."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgsched.core.model import Row
from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import raise_explained
from pgsched.db.rows import fetch, fetch_as, rows, value

MOST_TOKENS = 1000  # places in one statement
PATIENCE_S = 1.0  # how long the end of a session waits for others who have locked its lines
MOST_NOTE = 65_536  # characters: a note may have so many


class Answer(NamedTuple):
    """How it stands with a place in the line of a lock.

    `fence`: the number of the grant; None while it waits. `place`: the place in line, from 1; None: not in line.
    `look_in_s`: in how many seconds to ask again, for the first of those that wait.
    """

    fence: int | None
    place: int | None
    look_in_s: float | None


class LeaseState(NamedTuple):
    """How it stands with one place of a session; see `Answer`.

    `position`: in line, at most 100; None: not asked for.
    """

    token: UUID
    fence: int | None
    look_in_s: float | None
    position: int | None


@dataclass(frozen=True, slots=True)
class Contender:
    """A holder of a lock, or one that waits for it (`fence` is None).

    `mode`: exclusive, shared, or counted (a semaphore). `session`: the name of its session: user@host:pid for programs
    in Python. `note`: what it says of itself.
    """

    fence: int | None
    mode: str
    session: str
    owner: str
    note: str | None
    since: datetime
    granted_at: datetime | None
    lease_until: datetime


def open_session(conn: Connection[Any], token: UUID, ttl_s: float, name: str) -> int:
    """Open a session, or renew the one with this token; return its id. Raises LeaseLost where it has ended."""
    return int(rows(conn, "session_open", {"token": token, "ttl_s": ttl_s, "name": name})[0]["id"])


def renew_session(conn: Connection[Any], token: UUID) -> int | None:
    """Renew a session; return how many grants somebody else has taken from it, or None where it has ended.

    Raises the driver's errors, for the loop to classify; so do `read_leases` and `give_back`.
    """
    row = fetch(conn, "session_renew", {"token": token})[0]
    return row["losses"] if row["lives"] else None


def end_session(conn: Connection[Any], token: UUID) -> None:
    """End a session, and give back all that it has. What others have locked for long is given on when they are done."""
    with raise_explained():
        left: int | None = value(conn, "session_end", {"token": token})
        until = time.monotonic() + PATIENCE_S
        while left:
            before, left = left, value(conn, "session_end", {"token": token})
            if left and left >= before:
                if time.monotonic() > until:
                    return
                time.sleep(0.05)


def read_leases(conn: Connection[Any], session: UUID, tokens: Iterable[UUID], positions: bool) -> list[LeaseState]:
    """Return how it stands with these places of a session. One that is missing in the answer is lost."""
    params = {"session": session, "tokens": plain(tokens), "positions": positions}
    return fetch_as(conn, LeaseState, "session_leases", params)


def acquire(conn: Connection[Any], params: Row) -> Answer:
    """Ask for a lock with the params of `lock_acquire`. Raises InputError, NotPermitted or LeaseLost."""
    return Answer(**rows(conn, "lock_acquire", params)[0])


def release(conn: Connection[Any], name: str, token: UUID) -> bool:
    """Give a lock back or leave its line; return False where the place was lost before."""
    return bool(rows(conn, "lock_release", {"name": name, "token": token})[0]["released"])


def give_back(conn: Connection[Any], name: str, token: UUID) -> None:
    """Give a lock back or leave its line, if the place is there. Raises the driver's errors."""
    fetch(conn, "lock_release", {"name": name, "token": token})


def assert_lock(conn: Connection[Any], name: str, fence: int) -> None:
    """Raise LeaseLost unless this grant is held; it is held until the transaction ends."""
    rows(conn, "lock_assert", {"name": name, "fence": fence})


def break_lock(conn: Connection[Any], name: str, fence: int | None) -> int:
    """Take a lock from its holders, or from one; return how many held it. Raises NotPermitted."""
    return int(rows(conn, "lock_break", {"name": name, "fence": fence})[0]["broken"])


def read_line(conn: Connection[Any], name: str, most: int, *, note_length: int = MOST_NOTE) -> list[Contender]:
    """Return the holders of a lock and those who wait for it, in their order. Raises NotPermitted.

    `note_length`: how many characters of each note are read.
    """
    with raise_explained():
        return fetch_as(conn, Contender, "lock_line", {"name": name, "most": most, "note_length": note_length})
