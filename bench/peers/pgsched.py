"""pgsched itself: `pgsched worker` with default settings, and `Task.enqueue` on the App's own connection.

The enqueuing process does nothing else, so the plain form serves better than the asyncio form: it takes a third less
time there. Bulk is `enqueue_many`, in one call.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence

from bench.peers.record import dsn, number
from bench.peers.verbs import Adapter, main
from pgsched import App
from pgsched.db.schema.migrate import upgrade


class Pgsched(Adapter):
    """pgsched."""

    async def setup(self) -> None:
        upgrade(dsn())

    async def open(self) -> None:
        self.app = App("bench", dsn=dsn())

        @self.app.task(name="noop")
        async def noop(i: int = -1) -> None: ...

        self.noop = noop

    async def close(self) -> None:
        self.app.close()

    async def enqueue(self, i: int) -> None:
        self.noop.enqueue(i=i)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        self.noop.enqueue_many([{"i": i} for i in numbers])

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        """Raise NotImplementedError: the process becomes `pgsched worker` instead, the program that people start."""
        raise NotImplementedError


def become_worker() -> None:
    """Replace this process by `pgsched worker`, with default settings except for a concurrency that is asked for."""
    command = [sys.executable, "-m", "pgsched", "worker", "--app", "bench.peers.pgsched_app:app", "--dsn", dsn()]
    if limit := number("CONCURRENCY", 0):
        command += ["--concurrency", str(limit)]
    command += json.loads(os.environ.get("BENCH_FLAGS", "[]"))
    os.execv(sys.executable, command)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        become_worker()
    main(Pgsched())
