"""What only the leader writes. Every function takes the connection first and commits nothing.

The session lock chooses a leader; `fence` proves it inside the very transaction that writes, so that a leader frozen
for hours, or two clients behind one pooled session, cannot both write.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from pgsched.db.connect import Connection
from pgsched.db.query import fetch
from pgsched.db.statements import sql


class NotLeading(Exception):
    """The fence turned this process away: another term has begun, or another leader is inside a transaction."""


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One row that a tick makes (the columns of `tick_insert`)."""

    job_id: int
    slot: datetime
    state: str
    available_at: datetime
    expires_at: datetime | None = None
    reason: str | None = None
    covers_from: datetime | None = None
    covers_until: datetime | None = None
    covers_count: int | None = None


@dataclass(frozen=True, slots=True)
class Advance:
    """How a tick leaves one job (the columns of `tick_advance`)."""

    job_id: int
    decided_until: datetime | None
    next_run_at: datetime | None
    run_count: int = 0
    error: str | None = None


def try_lead(conn: Connection[Any]) -> bool:
    """Stand for leader; True when this session holds the lock now. False on a standby."""
    row = conn.execute(sql("leader_try")).fetchone()
    return bool(row and row[0])


def fence(conn: Connection[Any], term: int | None) -> None:
    """First call of every leader transaction. Raises NotLeading unless `term` is the newest (None: electing)."""
    locked = conn.execute(sql("leader_fence")).fetchone()
    if not locked or not locked[0]:
        raise NotLeading("another leader is inside a transaction")
    if term is None:
        return
    row = conn.execute(sql("leader_term")).fetchone()
    if not row or row[0] != term:
        raise NotLeading(f"term {term} has ended: term {row[0] if row else None} leads")


def elect(conn: Connection[Any], holder: str) -> tuple[int, float]:
    """Begin a new term. Returns (term, seconds to wait before reaping: the longest lease in use, 0 if none)."""
    row = conn.execute(
        sql("leader_elect"), {"holder": holder, "hostname": socket.gethostname(), "pid": os.getpid()}
    ).fetchone()
    assert row is not None
    return int(row[0]), float(row[1] or 0)


def seen(conn: Connection[Any], term: int, *, resign: bool = False) -> None:
    """Renew the leader row of `term`, or close it."""
    conn.execute(sql("leader_seen"), {"term": term, "resign": resign})


def unlock(conn: Connection[Any]) -> None:
    """Give the session lock back and wake the candidates."""
    conn.execute(sql("leader_resign"))


def due_jobs(conn: Connection[Any], n: int) -> list[dict[str, Any]]:
    """Lock up to `n` due jobs; see `sql/tick_due.sql` for the columns."""
    return fetch(conn, sql("tick_due"), {"n": n})


def columns(values: Sequence[Any], kind: type) -> dict[str, list[Any]]:
    """Turn dataclass rows into the parallel arrays that the set-based statements take (`slot` -> `slots`)."""
    return {f"{field.name}s": [getattr(value, field.name) for value in values] for field in fields(kind)}


def insert_slots(conn: Connection[Any], slots: Sequence[SlotRow]) -> int:
    """Insert decided slots; returns how many were new."""
    return conn.execute(sql("tick_insert"), columns(slots, SlotRow)).rowcount if slots else 0


def advance_jobs(conn: Connection[Any], advances: Sequence[Advance]) -> None:
    """Move high-water marks and next slots."""
    if advances:
        conn.execute(sql("tick_advance"), columns(advances, Advance))


def end_open_runs(conn: Connection[Any], jobs: dict[int, bool]) -> None:
    """End the unfinished runs of these jobs; the value says whether running ones are terminated or asked."""
    if jobs:
        conn.execute(sql("tick_replace"), {"job_ids": list(jobs), "terminates": list(jobs.values())})


def admit(conn: Connection[Any], n: int) -> int:
    """Make due and unblocked held runs claimable; returns how many."""
    due = conn.execute(sql("admit_scheduled"), {"n": n}).fetchone()
    free = conn.execute(sql("admit_waiting"), {"n": n}).fetchone()
    return int(due[0] if due else 0) + int(free[0] if free else 0)


def reap(conn: Connection[Any], n: int, crash_limit: int) -> list[dict[str, Any]]:
    """Take back expired claims; see `sql/reap.sql` for the columns."""
    return fetch(conn, sql("reap"), {"n": n, "crash_limit": crash_limit})


def expire(conn: Connection[Any], n: int) -> int:
    """End unstarted runs whose start deadline passed; returns how many."""
    return conn.execute(sql("expire"), {"n": n}).rowcount


def prune(conn: Connection[Any], keep_s: float, n: int) -> int:
    """Delete a batch of old history; returns how many runs went."""
    row = conn.execute(sql("prune"), {"keep_s": keep_s, "n": n}).fetchone()
    conn.execute(sql("prune_workers"))
    conn.execute(sql("prune_jobs"), {"n": n})
    return int(row[0]) if row else 0


def next_wake(conn: Connection[Any]) -> float | None:
    """Seconds until the next known decision, None if nothing is planned."""
    row = conn.execute(sql("next_wake")).fetchone()
    return None if row is None or row[0] is None else float(row[0])
