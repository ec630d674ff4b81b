"""Claim, renew, settle: the three statements about ownership, each safe to send twice.

A claim's token is picked before the statement is sent, so that a lost answer can be asked for again; every later write
is fenced by (id, token, running).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pgsched.db.connect import AsyncConnection, Connection
from pgsched.db.statements import sql
from pgsched.model import Claim, Settlement


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worker may run: every task of `kinds`, and the python `tasks` that its app registered."""

    worker_id: int
    lease_s: float
    kinds: list[str]
    tasks: list[str]


def in_order(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """RETURNING has no order: put the claims back into (priority, available_at, id)."""
    return sorted((Claim(*row) for row in rows), key=lambda c: (c.priority, c.available_at, c.id))


async def claim(conn: AsyncConnection[Any], wanted: Wanted, queue: str, n: int, token: UUID) -> list[Claim]:
    """Take up to `n` queued runs of `queue`."""
    cursor = await conn.execute(
        sql("claim"),
        {
            "queue": queue,
            "n": n,
            "token": token,
            "worker_id": wanted.worker_id,
            "lease_s": wanted.lease_s,
            "kinds": wanted.kinds,
            "tasks": wanted.tasks,
        },
    )
    return in_order(await cursor.fetchall())


async def claim_again(conn: AsyncConnection[Any], queue: str, token: UUID) -> list[Claim]:
    """The claims that a `claim` with this token made although its answer was lost."""
    cursor = await conn.execute(sql("claim_again"), {"queue": queue, "token": token})
    return in_order(await cursor.fetchall())


async def claimable_queues(conn: AsyncConnection[Any]) -> list[str]:
    """The queues that have open runs."""
    cursor = await conn.execute(sql("claimable_queues"))
    return [row[0] for row in await cursor.fetchall()]


async def settle(conn: AsyncConnection[Any], batch: Sequence[Settlement], worker: str) -> list[tuple[int, UUID, str]]:
    """Record a batch of outcomes; returns (id, token, verdict) with the new state, 'repeated' or 'lost'."""
    cursor = await conn.execute(
        sql("settle"),
        {
            "ids": [s.claim.id for s in batch],
            "tokens": [s.claim.token for s in batch],
            "outcomes": [str(s.outcome.result) for s in batch],
            "retry_ins": [s.retry_in_s for s in batch],
            "results": [None if s.outcome.value is None else json.dumps(s.outcome.value) for s in batch],
            "errors": [s.outcome.error for s in batch],
            "tracebacks": [s.outcome.traceback for s in batch],
            "log_tails": [s.outcome.log_tail for s in batch],
            "worker": worker,
        },
    )
    return [(row[0], row[1], row[2]) for row in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat learned: the claims renewed, those it could not look at because somebody held the row, and
    which of either somebody wants cancelled. Any other claim was lost."""

    kept: frozenset[tuple[int, UUID]]
    unsure: frozenset[tuple[int, UUID]]
    cancel: frozenset[tuple[int, UUID]]


def heartbeat(
    conn: Connection[Any],
    worker_id: int,
    lease_s: float,
    held: Sequence[tuple[int, UUID]],
    abandoned: int = 0,
    *,
    stopping: bool = False,
) -> Beat:
    """Renew the lease of every held claim and the worker's own row."""
    rows = conn.execute(
        sql("heartbeat"),
        {
            "worker_id": worker_id,
            "lease_s": lease_s,
            "running": len(held),
            "abandoned": abandoned,
            "stopping": stopping,
            "ids": [run_id for run_id, _ in held],
            "tokens": [token for _, token in held],
        },
    ).fetchall()
    return Beat(
        kept=frozenset((r[0], r[1]) for r in rows if r[3]),
        unsure=frozenset((r[0], r[1]) for r in rows if not r[3]),
        cancel=frozenset((r[0], r[1]) for r in rows if r[2]),
    )
