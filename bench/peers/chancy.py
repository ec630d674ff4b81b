"""Chancy 0.26: the asyncio executor ("for running large numbers of IO-bound jobs"), with eager polling.

Queue concurrency is 1,000: a claim takes as many jobs as there are free places, and finished jobs are written together.
The metrics and workflow plugins are off, because a worker without them does less per job. Leadership, pruner and
recovery stay on. Bulk is `push_many`, in one batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from chancy import Chancy, Queue, Worker, job
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery

from bench.peers import chancy_task
from bench.peers.record import dsn, number
from bench.peers.verbs import Adapter, main


def make() -> Chancy:
    """Return an app with the plugins that a worker needs."""
    quiet = logging.getLogger("chancy.bench")
    quiet.setLevel(logging.ERROR)
    plugins = [Leadership(), Pruner(), Recovery()]
    return Chancy(dsn(), plugins=plugins, no_default_plugins=True, log=quiet)


class ChancyAdapter(Adapter):
    """Chancy."""

    executor = Chancy.Executor.Async
    concurrency = 1000
    function: Callable[..., Any] = staticmethod(chancy_task.noop)

    async def setup(self) -> None:
        async with make() as app:
            await app.migrate()
            limit = number("CONCURRENCY", self.concurrency)
            await app.declare(
                Queue("default", concurrency=limit, executor=self.executor, eager_polling=True, polling_interval=1)
            )

    async def open(self) -> None:
        self.app = make()
        await self.app.__aenter__()
        self.noop = job()(self.function)

    async def close(self) -> None:
        await self.app.__aexit__(None, None, None)

    async def enqueue(self, i: int) -> None:
        await self.app.push(self.noop.job.with_kwargs(i=i))

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        jobs = [self.noop.job.with_kwargs(i=i) for i in numbers]
        async for _ in self.app.push_many(jobs, batch_size=len(jobs)):
            pass

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        chancy_task.record, chancy_task.sleep_s = record, sleep_s
        async with make() as app, Worker(app) as worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    main(ChancyAdapter())
