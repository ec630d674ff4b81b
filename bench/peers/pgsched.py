"""pgsched itself: `pgsched worker` with default settings, `Task.enqueue` on the App's own connection. (Nothing else is
under way in the enqueuing process, so the plain form serves better than the asyncio one: it takes a third less there.)
Bulk by `enqueue_many`, in one call.
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
        """Become `pgsched worker`: what is measured is the program that people start."""
        raise NotImplementedError


def become_worker() -> None:
    """Replace this process by the command line's worker. Default settings, but for the concurrency if one is asked."""
    command = [sys.executable, "-m", "pgsched", "worker", "--app", "bench.peers.pgsched_app:app", "--dsn", dsn()]
    if limit := number("CONCURRENCY", 0):
        command += ["--concurrency", str(limit)]
    command += json.loads(os.environ.get("BENCH_FLAGS", "[]"))
    os.execv(sys.executable, command)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        become_worker()
    main(Pgsched())
