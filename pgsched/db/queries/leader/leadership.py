"""What only the leader writes. Every function takes the connection first and commits nothing.

The session lock is how candidates wait, where nobody else takes it; `fence` proves leadership inside the very
transaction that writes, by a row that only leaders may lock, so that a leader frozen for hours, or two clients behind
one pooled session, cannot both write.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pgsched.db import fleets
from pgsched.db.arrays import literal
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.rows import fetch, fetch_as, value
from pgsched.db.statements import sql


class NotLeading(Exception):
    """The fence turned this process away: another term has begun, or another leader is inside a transaction."""


def try_lead(conn: Connection[Any]) -> bool:
    """Stand for leader; True when this session holds the lock now. False on a standby."""
    (row,) = fetch(conn, "leader_try")
    return bool(row["led"])


def candidates(conn: Connection[Any]) -> int:
    """How many stand for leader in this database, the leader and the one that asks among them."""
    return int(value(conn, "leader_candidates"))


def contested(conn: Connection[Any], gone_s: float) -> bool:
    """Does a session that does not lead hold the lock, and was the newest term not seen for `gone_s` seconds?"""
    return bool(value(conn, "leader_contested", {"gone_s": gone_s}))


def vacant(conn: Connection[Any], gone_s: float, *, locked: bool = False) -> bool:
    """Has the newest term resigned, or not been seen for `gone_s` seconds? `locked`: this session has the lock, so that
    a leader who had it is gone. False on a standby."""
    return bool(value(conn, "leader_vacant", {"gone_s": gone_s, "locked": locked}))


def fence(conn: Connection[Any], term: int | None) -> int | None:
    """First call of every leader transaction; returns the newest term, whose row it has locked (None: nobody ever led).
    Raises NotLeading unless `term` is the newest (None: electing)."""
    rows = fetch(conn, "leader_fence", {"term": term})
    locked = rows[0]["term"] if rows else None
    # a statement of its own, with a snapshot that is younger than the lock
    found = newest(conn)
    if found is not None and locked is None:
        raise NotLeading("another leader is inside a transaction")
    if found != (expected := locked if term is None else term):
        raise NotLeading(f"term {expected} has ended: term {found} leads")
    return found


def newest(conn: Connection[Any]) -> int | None:
    """The newest term, None: nobody ever led."""
    (row,) = fetch(conn, "leader_term", {"fleet": fleets.expected(conn)})
    fleets.met(conn, row["fleet"])
    term: int | None = row["term"]
    return term


def elect(conn: Connection[Any], holder: str, *, locked: bool = False, first: bool = False) -> tuple[int, float]:
    """Begin a new term; `locked`: this session has the lock; `first`: the fence found no term to lock, so that others
    may be inside as well, and only one of them begins the first. Returns (term, seconds to wait before reaping: the
    longest lease in use, 0 if none). Jobs whose time zone the leader before did not know are due again, and the flags
    outside of transactions are made anew."""
    conn.execute(sql("tick_again"))
    conn.execute(sql("flags_rebuild"))
    values = {
        "holder": holder, "hostname": socket.gethostname(), "pid": os.getpid(), "by_lock": locked,
        "shared": is_shared(conn), "first": first,
    }  # fmt: skip
    rows = fetch(conn, "leader_elect", values)
    if not rows:
        raise NotLeading("another candidate began the first term")
    return rows[0]["term"], rows[0]["grace_s"] or 0.0


def seen(conn: Connection[Any], term: int, *, resign: bool = False) -> None:
    """Renew the leader row of `term`, or close it."""
    conn.execute(sql("leader_seen"), {"term": term, "resign": resign})


def unlock(conn: Connection[Any]) -> None:
    """Give the session lock back: somebody leads without it."""
    conn.execute(sql("leader_unlock"))


def wake_candidates(conn: Connection[Any], *, locked: bool) -> None:
    """The term is closed: give the session lock back, if this session has it, and wake the candidates."""
    conn.execute(sql("leader_resign"), {"locked": locked})


def sleeps(conn: Connection[Any], seconds: float) -> None:
    """Say that the leader looks again in so many seconds."""
    conn.execute(sql("leader_sleeps"), {"seconds": seconds})


def clear_notifications(conn: Connection[Any]) -> float:
    """Have the server forget the notifications that everybody has read; how full its queue is, 0 to 1."""
    return float(value(conn, "notifications_clear"))


class Instants(NamedTuple):
    """One for each index that the leader reads from its beginning: next slots of jobs, runs that are scheduled, start
    deadlines, ends of `retry_within`. In seconds since 1970."""

    job_s: float
    scheduled_s: float
    expires_s: float
    held_s: float


Firsts = tuple[float | None, ...]  # what was found at the earliest in each of them; None: nothing
EVER = Instants(-math.inf, -math.inf, -math.inf, -math.inf)


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to do; see `leader_look` in sql/leadership.sql. `wait_s`: seconds until something is due, None if
    never; `now_s`: the database's clock, since 1970."""

    wait_s: float | None
    jobs: bool
    runs: bool
    waiting: bool
    silent: bool
    passed_over: bool
    backfills: bool
    limited: bool
    unapplied: bool
    ended: bool
    now_s: float
    job_s: float | None = None
    scheduled_s: float | None = None
    expires_s: float | None = None
    held_s: float | None = None

    @property
    def firsts(self) -> Firsts:
        """The first instants that were found, in the order of `Instants`."""
        return self.job_s, self.scheduled_s, self.expires_s, self.held_s


def look(
    conn: Connection[Any],
    term: int,
    *,
    searched_s: float = 0.0,
    count: bool = False,
    lead_s: float = 0.0,
    aside: Sequence[int] = (),
    since: Instants = EVER,
) -> Look:
    """Ask what is due (jobs: within `lead_s` seconds, but for those set aside) of what is not older than `since`, and
    say that the term is alive."""
    values = {"term": term, "searched_s": searched_s, "count": count, "lead_s": lead_s, "aside": literal(aside)}
    begins = {"jobs_s": since.job_s, "scheduled_s": since.scheduled_s, "expires_s": since.expires_s}
    (found,) = fetch_as(conn, Look, "leader_look", values | begins | {"held_s": since.held_s})
    return found


def look_below(conn: Connection[Any], low_s: float, high_s: float) -> Firsts:
    """The first instants from one to right before another (seconds since 1970): `leader_look_below`."""
    (found,) = fetch(conn, "leader_look_below", {"low_s": low_s, "high_s": high_s})
    return found["job_s"], found["scheduled_s"], found["expires_s"], found["held_s"]
