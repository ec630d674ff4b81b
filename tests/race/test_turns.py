"""A claimer of several queues: one that never runs dry starves no other."""

from __future__ import annotations

import asyncio
from collections import Counter

import psycopg

from pgsched.db.claims import Wanted
from pgsched.model import Claim
from pgsched.worker.claim import Claimer
from tests.race.setting import KINDS


def test_a_queue_that_never_runs_dry_starves_no_other(dsn: str, db: psycopg.Connection) -> None:
    for queue in "abc":
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT %s, 't' FROM generate_series(1, 60)", [queue])
    taken: Counter[str] = Counter()
    free = 5

    def take(claims: list[Claim], _: float) -> None:
        nonlocal free
        free -= len(claims)
        taken.update(claim.queue for claim in claims)

    async def scene() -> None:
        nonlocal free
        wanted = Wanted(1, 30.0, KINDS["kinds"], KINDS["tasks"])
        claimer = Claimer(dsn, wanted, (), 1.0, lambda: free, take)
        for _ in range(9):
            free = 5
            await claimer._round()
        await claimer.close()

    asyncio.run(scene())
    assert taken == {"a": 15, "b": 15, "c": 15}
