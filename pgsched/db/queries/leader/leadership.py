"""What only the leader writes. Every function takes the connection first and commits nothing.

The session lock chooses a leader; `fence` proves it inside the very transaction that writes, so that a leader frozen
for hours, or two clients behind one pooled session, cannot both write.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from pgsched.db.connection.connect import Connection
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


def vacant(conn: Connection[Any], gone_s: float) -> bool:
    """Has the newest term resigned, or not been seen for `gone_s` seconds? False on a standby."""
    return bool(value(conn, "leader_vacant", {"gone_s": gone_s}))


def fence(conn: Connection[Any], term: int | None) -> None:
    """First call of every leader transaction. Raises NotLeading unless `term` is the newest (None: electing)."""
    if not value(conn, "leader_fence"):
        raise NotLeading("another leader is inside a transaction")
    if term is None:
        return
    # a statement of its own, with a snapshot that is younger than the lock
    if (found := newest(conn)) != term:
        raise NotLeading(f"term {term} has ended: term {found} leads")


def newest(conn: Connection[Any]) -> int | None:
    """The newest term, None: nobody ever led."""
    term: int | None = value(conn, "leader_term")
    return term


def elect(conn: Connection[Any], holder: str) -> tuple[int, float]:
    """Begin a new term. Returns (term, seconds to wait before reaping: the longest lease in use, 0 if none). Jobs whose
    time zone the leader before did not know are due again, and the flags outside of transactions are made anew."""
    conn.execute(sql("tick_again"))
    conn.execute(sql("flags_rebuild"))
    values = {"holder": holder, "hostname": socket.gethostname(), "pid": os.getpid()}
    (row,) = fetch(conn, "leader_elect", values)
    return row["term"], row["grace_s"] or 0.0


def seen(conn: Connection[Any], term: int, *, resign: bool = False) -> None:
    """Renew the leader row of `term`, or close it."""
    conn.execute(sql("leader_seen"), {"term": term, "resign": resign})


def unlock(conn: Connection[Any]) -> None:
    """Give the session lock back and wake the candidates."""
    conn.execute(sql("leader_resign"))


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


def look(
    conn: Connection[Any], term: int, *, searched_s: float = 0.0, count: bool = False, lead_s: float = 0.0
) -> Look:
    """Ask what is due (jobs: within `lead_s` seconds), and say that the term is alive."""
    values = {"term": term, "searched_s": searched_s, "count": count, "lead_s": lead_s}
    (found,) = fetch_as(conn, Look, "leader_look", values)
    return found
