"""Limits of jobs, keys and queues, and the admission of runs under them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from pgsched.core.model import Claim, Result
from pgsched.db.connection.connect import aconnect
from pgsched.db.queries.leader import ticks
from pgsched.db.queries.runs.claims import settle
from pgsched.leader import admission, changed_limits
from tests.support.db.setting import done, take
from tests.support.fleet import one

STATES = "SELECT state, count(*) FROM pgsched.runs GROUP BY state ORDER BY state"


def add(db: psycopg.Connection, n: int, key: str | None = None, queue: str = "default", **columns: Any) -> list[int]:
    given = {"task": "t"} | columns
    rows = db.execute(
        f"INSERT INTO pgsched.runs (queue, concurrency_key, {', '.join(given)})"
        f" SELECT %s, %s{', %s' * len(given)} FROM generate_series(1, %s) RETURNING id".encode(),
        [queue, key, *given.values(), n],
    )
    return [row[0] for row in rows.fetchall()]


def limit(db: psycopg.Connection, name: str, concurrency: int | None = None, **columns: Any) -> None:
    given = {"name": name, "concurrency": concurrency} | columns
    db.execute(f"INSERT INTO pgsched.limits ({', '.join(given)}) VALUES ({', '.join(['%s'] * len(given))})".encode(),
               list(given.values()))  # fmt: skip


def limit_queue(db: psycopg.Connection, name: str = "default", **columns: Any) -> None:
    given = {"name": name} | columns
    db.execute(f"INSERT INTO pgsched.queues ({', '.join(given)}) VALUES ({', '.join(['%s'] * len(given))})".encode(),
               list(given.values()))  # fmt: skip


def admit(db: psycopg.Connection, admission_state: admission.AdmissionState | None = None) -> int:
    """Admit runs and apply changed limits as the leader does in a round; return how many runs that touched."""
    admission_state = admission_state or admission.AdmissionState(share=1.0)
    with db.transaction():
        ticks.admit(db, 5000)
        return changed_limits.apply_changed_limits(db, admission_state) + admission.admit_limited_runs(
            db, admission_state
        )


def end(db: psycopg.Connection, run_id: int, state: str = "succeeded") -> None:
    db.execute("UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp() WHERE id = %s", [state, run_id])


def states(db: psycopg.Connection) -> dict[str, int]:
    return dict(db.execute(STATES).fetchall())


def applied(db: psycopg.Connection) -> bool:
    """Run one more round; return whether the limits of all queues are applied."""
    admit(db)
    return bool(one(db, "SELECT bool_and(applied_at IS NOT NULL) FROM pgsched.queues"))


def claim_all(db: psycopg.Connection, n: int = 1000) -> list[int]:
    return [claim.id for claim in take(db, n)]


def release(dsn: str, claim: Claim) -> list[str]:
    """Release a claim whose attempt was not started, as a worker does."""

    async def settled() -> list[str]:
        async with await aconnect(dsn) as conn:
            return await settle(conn, [done(claim, Result.RELEASED)], "w")

    return asyncio.run(settled())
