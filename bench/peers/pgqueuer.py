"""PgQueuer 1.6, as its performance guide tunes it.

It uses asyncpg (1.7 times as fast as psycopg, says its guide) on one direct connection per manager, because LISTEN
needs a dedicated connection. `pgq autovac` is applied. Durability is `durable`, the default and the only one that keeps
jobs over a crash. uvloop is used as in its own tools/benchmark.py. batch_size is 500, because no-op jobs want a large
one ("increase when jobs are short-lived"); 1,000 is not faster. PgQueuer buffers finished jobs up to batch_size or
0.1 s, which is not a setting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.record import dsn, number
from bench.peers.verbs import Adapter, main


class Pgqueuer(Adapter):
    """PgQueuer."""

    run: Callable[[Coroutine[Any, Any, None]], None] = staticmethod(uvloop.run)

    async def setup(self) -> None:
        await self.open()
        await self.queries.install()
        await self.queries.optimize_autovacuum()
        await self.close()

    async def open(self) -> None:
        self.conn = await asyncpg.connect(dsn())
        self.queries = Queries(AsyncpgDriver(self.conn))

    async def close(self) -> None:
        await self.conn.close()

    async def enqueue(self, i: int) -> None:
        await self.queries.enqueue("noop", json.dumps({"i": i}).encode())

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        n = len(numbers)
        await self.queries.enqueue(["noop"] * n, [json.dumps({"i": i}).encode() for i in numbers], [0] * n)

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        async def noop(job: Job) -> None:
            record(json.loads(job.payload or b"{}")["i"])
            if sleep_s:
                await asyncio.sleep(sleep_s)

        await self.run_manager(noop)

    async def run_manager(self, noop: Callable[[Job], Coroutine[Any, Any, None]]) -> None:
        """Run the jobs by this function until the process is killed."""
        pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(dsn())))
        pgq.entrypoint("noop")(noop)
        limit = number("CONCURRENCY", 0)
        batch = min(500, limit // 2) if limit else 500
        await pgq.run(batch_size=batch, max_concurrent_tasks=limit or None, dequeue_timeout=timedelta(seconds=30))


if __name__ == "__main__":
    main(Pgqueuer())
