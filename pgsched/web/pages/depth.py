"""Depth over time. The rule: nobody else keeps how deep the queues were, so the console notes it while it runs, and its
chart begins when the console did."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from pgsched.db.connection.connect import DatabaseError
from pgsched.db.connection.pool import Pool
from pgsched.errors import PgschedError
from pgsched.services.charts import depth

EVERY_S, KEPT_S = 10.0, 24 * 3600.0


class Depth(NamedTuple):
    """How many runs there were at an instant of this machine's monotonic clock."""

    at: float
    queued: int
    running: int
    held: int


class Depths:
    """What was noted, oldest first."""

    def __init__(self) -> None:
        self.kept: deque[Depth] = deque(maxlen=int(KEPT_S / EVERY_S))

    def lately(self, seconds: float) -> list[Depth]:
        """Those of the last seconds."""
        since = time.monotonic() - seconds
        return [one for one in list(self.kept) if one.at >= since]


async def watching(pool: Pool, depths: Depths) -> None:
    """Note the depth every EVERY_S; a database that does not answer leaves a gap."""
    while True:
        with contextlib.suppress(PgschedError, DatabaseError):
            depths.kept.append(await run_in_threadpool(note, pool))
        await asyncio.sleep(EVERY_S)


def note(pool: Pool) -> Depth:
    """The depth now."""
    with pool.connection() as conn:
        found = depth(conn)
    return Depth(time.monotonic(), found["queued"], found["running"], found["scheduled"] + found["waiting"])
