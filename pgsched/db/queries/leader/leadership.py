"""Leadership: the election, the fence of each transaction of the leader, and the question of what is due.

Every function takes the connection first and commits nothing.

Candidates wait by means of a session lock, as long as no foreign session takes it. The lock is no proof. `fence` is the
proof: it locks a row that only leaders may lock, inside the transaction that writes. So a leader that was frozen for
hours cannot write beside its successor, nor can two clients behind one pooled session.
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
    """The fence refused this process: another term has begun, or another leader is inside a transaction."""


def try_lead(conn: Connection[Any]) -> bool:
    """Try to take the session lock; return whether this session holds it now. Always False on a standby."""
    (row,) = fetch(conn, "leader_try")
    return bool(row["led"])


def count_candidates(conn: Connection[Any]) -> int:
    """Count the sessions that stand for leader in this database, including the leader's and this one."""
    return int(value(conn, "leader_candidates"))


def is_lock_contested(conn: Connection[Any], gone_s: float) -> bool:
    """Check whether a candidate may stand although it did not get the session lock.

    It may where a session that does not lead holds the lock, and the newest term has resigned or was not seen for
    `gone_s` seconds. False on a standby.
    """
    return bool(value(conn, "leader_contested", {"gone_s": gone_s}))


def is_vacant(conn: Connection[Any], gone_s: float, *, locked: bool = False) -> bool:
    """Check whether a new term may begin: the newest one has resigned, or was not seen for `gone_s` seconds.

    `locked`: this session holds the session lock, so that a leader that led with it is gone. False on a standby.
    """
    return bool(value(conn, "leader_vacant", {"gone_s": gone_s, "locked": locked}))


def fence(conn: Connection[Any], term: int | None) -> int | None:
    """Lock the row of the newest term and return that term; None: no process has ever led.

    The first call of every transaction of the leader. `term`: the caller's term, None in an election. Raises NotLeading
    where `term` is not the newest, or another leader is inside a transaction.
    """
    rows = fetch(conn, "leader_fence", {"term": term})
    locked = rows[0]["term"] if rows else None
    # a statement of its own: its snapshot must be newer than the lock
    found = newest_term(conn)
    if found is not None and locked is None:
        raise NotLeading("another leader is inside a transaction")
    if found != (expected := locked if term is None else term):
        raise NotLeading(f"term {expected} has ended: term {found} leads")
    return found


def newest_term(conn: Connection[Any]) -> int | None:
    """Return the newest term; None: no process has ever led. Checks the database's fleet as well."""
    (row,) = fetch(conn, "leader_term", {"fleet": fleets.expected_fleet(conn)})
    fleets.remember_fleet(conn, row["fleet"])
    term: int | None = row["term"]
    return term


def elect(conn: Connection[Any], holder: str, *, locked: bool = False, first: bool = False) -> tuple[int, float]:
    """Begin a new term; return it, and the seconds to wait before reaping.

    The wait is at most the longest lease in use, 0 if there is none. Jobs whose time zone the former leader did not
    know become due again, and the flags that are kept outside of transactions are rebuilt.

    `locked`: this session holds the session lock
    `first`: the fence found no term to lock. Other candidates may be in a transaction too; one of them begins the first
      term.

    Raises NotLeading where another candidate has begun the first term.
    """
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


def mark_term_alive(conn: Connection[Any], term: int, *, resign: bool = False) -> None:
    """Mark the term as alive, or close it with `resign`."""
    conn.execute(sql("leader_seen"), {"term": term, "resign": resign})


def unlock(conn: Connection[Any]) -> None:
    """Release the session lock, and wake no candidate: another process leads without the lock."""
    conn.execute(sql("leader_unlock"))


def wake_candidates(conn: Connection[Any], *, locked: bool) -> None:
    """Wake the candidates once the term is closed, and release the session lock if this session holds it."""
    conn.execute(sql("leader_resign"), {"locked": locked})


def announce_sleep(conn: Connection[Any], seconds: float) -> None:
    """Announce that the leader looks again in `seconds`. A transaction that makes something due earlier notifies it."""
    conn.execute(sql("leader_sleeps"), {"seconds": seconds})


def clear_notifications(conn: Connection[Any]) -> float:
    """Let the server drop notifications that all sessions have read; return how full its queue is, 0 to 1."""
    return float(value(conn, "notifications_clear"))


class Instants(NamedTuple):
    """One instant for each index that the leader reads from its beginning, in seconds since 1970.

    `job_s`: next slots of jobs
    `scheduled_s`: runs that are scheduled
    `expires_s`: start deadlines
    `held_s`: ends of `retry_within`
    """

    job_s: float
    scheduled_s: float
    expires_s: float
    held_s: float


Firsts = tuple[float | None, ...]  # the earliest instant found in each of these indexes; None: none
EVER = Instants(-math.inf, -math.inf, -math.inf, -math.inf)


@dataclass(frozen=True, slots=True)
class DueWork:
    """What the leader has to do, as `leader_look` in sql/leadership.sql finds it.

    `wait_s`: seconds until something is due, None: nothing is known
    `jobs`: jobs are due
    `runs`: runs are to be made claimable, or to be ended
    `waiting`: runs wait that only the end of another run can release
    `silent`: a worker sent no heartbeat for a lease, so that claims may have expired
    `passed_over`: stretches of slots are to be recorded
    `calendars`: calendars have changed
    `backfills`: backfills are open
    `limited`: runs wait for limits alone
    `unapplied`: limits were changed and are to be applied
    `ended`: ended runs are to be counted
    `now_s`: the database's clock, in seconds since 1970
    `job_s`, `scheduled_s`, `expires_s`, `held_s`: the first instants that were found, as in `Instants`; None: none
    """

    wait_s: float | None
    jobs: bool
    runs: bool
    waiting: bool
    silent: bool
    passed_over: bool
    calendars: bool
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
        """Return the first instants that were found, in the order of `Instants`."""
        return self.job_s, self.scheduled_s, self.expires_s, self.held_s


def find_due_work(
    conn: Connection[Any],
    term: int,
    *,
    searched_s: float = 0.0,
    count: bool = False,
    lead_s: float = 0.0,
    excluded_ids: Sequence[int] = (),
    since: Instants = EVER,
) -> DueWork:
    """Find out what is due, and mark the term as alive.

    `searched_s`: when expired leases were last looked for, in seconds since 1970
    `count`: also look for ended runs that are to be counted
    `lead_s`: jobs count as due this many seconds early
    `excluded_ids`: ids of jobs that are left out
    `since`: the instants below which nothing is looked for
    """
    values = {"term": term, "searched_s": searched_s, "count": count, "lead_s": lead_s, "aside": literal(excluded_ids)}
    begins = {"jobs_s": since.job_s, "scheduled_s": since.scheduled_s, "expires_s": since.expires_s}
    (found,) = fetch_as(conn, DueWork, "leader_look", values | begins | {"held_s": since.held_s})
    return found


def look_below(conn: Connection[Any], low_s: float, high_s: float) -> Firsts:
    """Return the first instants from `low_s` to right before `high_s`, in seconds since 1970.

    `leader_look_below` in sql/leadership.sql: finds what `find_due_work` does not, because it became visible late.
    """
    (found,) = fetch(conn, "leader_look_below", {"low_s": low_s, "high_s": high_s})
    return found["job_s"], found["scheduled_s"], found["expires_s"], found["held_s"]
