"""The ceiling of pgsched's own statements and tables: its `claim` and `settle` in the bare loop of the raw ceiling.

The difference between this and pgsched is the worker: leases, places, timeouts, executors, retries, evidence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import uuid4

from bench.peers.pgsched import Pgsched
from bench.peers.raw import AHEAD, IDLE_S
from bench.peers.record import dsn
from bench.peers.verbs import main
from pgsched import gc_tuning
from pgsched.core.model import DONE, Claim, Settlement
from pgsched.db.connection.connect import BY_KEY, aconnect
from pgsched.db.queries.runs.claims import FROM_THE_START, WorkerOffer, claim, settle
from pgsched.worker.claiming.cursor import Cursor

LEASE_S = 600.0
BATCH = 4000  # a copy of the worker's value, so that a guard notices if the worker's value gets worse


class Statements(Pgsched):
    """pgsched's statements without a worker."""

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        gc_tuning.tune_for_long_run()  # as a worker does
        self.record, self.sleep_s = record, sleep_s
        ready: asyncio.Queue[list[Claim]] = asyncio.Queue(1)
        done: asyncio.Queue[list[Claim]] = asyncio.Queue(AHEAD)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._claim(ready))
            parts.create_task(self._settle(done))
            while True:
                claims = await ready.get()
                for one in claims:
                    await self._noop(**one.args)
                await done.put(claims)

    async def _noop(self, i: int) -> None:
        self.record(i)
        if self.sleep_s:
            await asyncio.sleep(self.sleep_s)

    async def _claim(self, ready: asyncio.Queue[list[Claim]]) -> None:
        wanted, cursor = WorkerOffer(0, LEASE_S, [], ["noop"]), Cursor()
        async with await aconnect(dsn(), settings=BY_KEY) as conn:
            while True:
                after, sent_at = cursor.after(time.monotonic()), time.monotonic()
                found = await claim(conn, wanted, "default", BATCH, uuid4(), after)
                if after is FROM_THE_START:
                    cursor.scanned(found, BATCH, sent_at, time.monotonic())
                else:
                    cursor.move(found)
                if found:
                    await ready.put(found)
                if len(found) < BATCH:
                    await asyncio.sleep(IDLE_S)

    async def _settle(self, done: asyncio.Queue[list[Claim]]) -> None:
        async with await aconnect(dsn(), settings=BY_KEY) as conn:
            while True:
                claims = await done.get()
                await settle(conn, [Settlement.of(one, DONE) for one in claims], "bench")


if __name__ == "__main__":
    main(Statements())
