"""Oban for Python 0.7.

A queue's limit is how many jobs one claim may take. Finished jobs are written with the next claim.

The limit is 500 for no-op jobs (its examples use 10 to 50, for jobs that do some work). Everything else is the default.
uvloop is used: Oban installs it, and its command line uses it. Bulk is `enqueue_many`, in one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench.peers.record import dsn, number
from bench.peers.verbs import Adapter, main

STATE: dict[str, Any] = {}


@worker(queue="default")
class Noop:
    """The one job."""

    async def process(self, job: Any) -> None:
        """Record the number, and do nothing else."""
        STATE["record"](job.args["i"])
        if STATE["sleep_s"]:
            await asyncio.sleep(STATE["sleep_s"])


class ObanAdapter(Adapter):
    """Oban."""

    run: Callable[[Coroutine[Any, Any, None]], None] = staticmethod(uvloop.run)

    async def setup(self) -> None:
        await self.open(started=False)
        await install(self.pool)
        await self.close()

    async def open(self, *, started: bool = True) -> None:
        self.pool = AsyncConnectionPool(dsn(), min_size=1, max_size=1 if started else 2, open=False)
        await self.pool.open()
        self.oban = Oban(pool=self.pool) if started else None

    async def close(self) -> None:
        await self.pool.close()

    async def enqueue(self, i: int) -> None:
        assert self.oban is not None
        await self.oban.enqueue(Noop.new({"i": i}))  # type: ignore[attr-defined]

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        assert self.oban is not None
        await self.oban.enqueue_many([Noop.new({"i": i}) for i in numbers])  # type: ignore[attr-defined]

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        STATE.update(record=record, sleep_s=sleep_s)
        pool = AsyncConnectionPool(dsn(), min_size=4, max_size=10, open=False)
        await pool.open()
        async with Oban(pool=pool, queues={"default": number("CONCURRENCY", 500)}):
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(ObanAdapter())
