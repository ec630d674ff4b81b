"""Procrastinate 3.10, which claims and finishes one job at a time.

So only the concurrency and the pool can be tuned: concurrency 30 with a pool of 20 connections (min = max, so that none
is opened during the measurement). LISTEN/NOTIFY is on (default), jobs are kept (default). Bulk is `batch_defer_async`,
as its guide says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import procrastinate

from bench.peers.record import dsn, number
from bench.peers.verbs import Adapter, main

logging.disable(logging.WARNING)


def make_app(most: int) -> procrastinate.App:
    """Return an app with a pool of its own."""
    connector = procrastinate.PsycopgConnector(conninfo=dsn(), min_size=most, max_size=most)
    return procrastinate.App(connector=connector)


class Procrastinate(Adapter):
    """Procrastinate."""

    async def setup(self) -> None:
        app = make_app(1)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        self.app = make_app(1)
        await self.app.open_async()
        self.task = self.app.configure_task("noop")

    async def close(self) -> None:
        await self.app.close_async()

    async def enqueue(self, i: int) -> None:
        await self.task.defer_async(i=i)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self.task.batch_defer_async(*({"i": i} for i in numbers))

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        app = make_app(20)

        @app.task(name="noop")
        async def noop(i: int) -> None:
            record(i)
            if sleep_s:
                await asyncio.sleep(sleep_s)

        async with app.open_async():
            await app.run_worker_async(concurrency=number("CONCURRENCY", 30))


if __name__ == "__main__":
    main(Procrastinate())
