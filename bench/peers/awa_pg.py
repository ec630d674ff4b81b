"""Awa 0.6.9 (a Rust core under Python handlers), as its configuration guide tunes a queue of very short jobs.

max_workers is 1,024 ("the 10k/s reference shape needs 1,024 in-flight worker permits"). Otherwise the defaults of 0.6
apply, which that guide calls tuned: claim batch 512, completion batch 512, completion flush 1 ms. There is one queue,
neither striped nor sharded, because those give up its order. Bulk is `enqueue_many_copy`, its COPY path for queue
storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from awa import AsyncClient

from bench.peers.record import dsn, number
from bench.peers.verbs import Adapter, main


@dataclass
class Noop:
    """The arguments of the one task."""

    i: int


def address() -> str:
    """Return the same database in the form that awa's driver takes.

    The form needs a host; the directory of the socket then replaces it.
    """
    return dsn().replace("@/", "@localhost/")


class Awa(Adapter):
    """Awa."""

    async def setup(self) -> None:
        client = AsyncClient(address())
        await client.migrate()
        await client.install_queue_storage()  # the engine of 0.6, which workers use in a fresh database anyway

    async def open(self) -> None:
        self.client = AsyncClient(address())

    async def close(self) -> None:
        await self.client.close()

    async def enqueue(self, i: int) -> None:
        await self.client.insert(Noop(i), queue="default")

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self.client.enqueue_many_copy([Noop(i) for i in numbers], queue="default")

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        client = AsyncClient(address(), max_connections=20)

        @client.task(Noop, queue="default")
        async def noop(job: object) -> None:
            record(job.args.i)  # type: ignore[attr-defined]
            if sleep_s:
                await asyncio.sleep(sleep_s)

        await client.start([("default", number("CONCURRENCY", 1024))])
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(Awa())
