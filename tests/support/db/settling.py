"""Settle claims, also some that were reaped before."""

from __future__ import annotations

import asyncio

import psycopg

from pgsched.core.model import Claim, Settlement
from pgsched.db.connection.connect import aconnect
from pgsched.db.queries.runs import claims
from tests.support.db.setting import (
    add_runs,
    let_expire,
    reap,
    take,
)

TOKEN = "AND r.token = (%(tokens)s::uuid[])[width_bucket(r.id, %(firsts)s::bigint[])]"


def settle(dsn: str, *batch: Settlement) -> list[str]:
    """Settle a batch; return the verdicts in its order."""

    async def once() -> list[str]:
        async with await aconnect(dsn) as conn:
            return await claims.settle(conn, batch, "w")

    return asyncio.run(once())


def zombie(db: psycopg.Connection) -> tuple[Claim, Claim]:
    """Return a reaped claim, and the next owner's claim of the same run."""
    add_runs(db, 1)
    (old,) = take(db)
    db.execute("UPDATE pgsched.runs SET begun = true")
    let_expire(db)
    assert [run["state"] for run in reap(db)] == ["queued"]
    (new,) = take(db)
    assert (new.id, new.attempt) == (old.id, 2)
    return old, new
