"""PgQueuer with a plain function.

PgQueuer itself takes no plain function. Its error message asks users to call one by `asyncio.to_thread`, so this
adapter does that. Everything else is as in `pgqueuer.py`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable

from pgqueuer.models import Job

from bench.peers.pgqueuer import Pgqueuer
from bench.peers.verbs import main

RECORDING = threading.Lock()


class PgqueuerPlain(Pgqueuer):
    """PgQueuer, each job in a thread of `asyncio.to_thread`."""

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        def plain(i: int) -> None:
            with RECORDING:
                record(i)
            if sleep_s:
                time.sleep(sleep_s)

        async def noop(job: Job) -> None:
            await asyncio.to_thread(plain, json.loads(job.payload or b"{}")["i"])

        await self.run_manager(noop)


if __name__ == "__main__":
    main(PgqueuerPlain())
