"""The depth of the queues over time, recorded by the console while it runs.

The database does not keep this history, so the chart begins when the console started.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from pgsched import log
from pgsched.db.connection.connect import DatabaseError
from pgsched.db.connection.pool import Pool
from pgsched.errors import PgschedError
from pgsched.services.charts import count_open_runs

logger = log.get("web")
EVERY_S, KEPT_S = 10.0, 24 * 3600.0


class Depth(NamedTuple):
    """The numbers of open runs at one instant.

    `at`: the instant, in monotonic seconds of this machine.
    `not_claimable`: runs that are scheduled or waiting.
    """

    at: float
    queued: int
    running: int
    not_claimable: int


class Depths:
    """The recorded depths, oldest first."""

    def __init__(self) -> None:
        self.records: deque[Depth] = deque(maxlen=int(KEPT_S / EVERY_S))

    def since(self, seconds: float) -> list[Depth]:
        """Return the depths of the last `seconds`."""
        since = time.monotonic() - seconds
        return [one for one in list(self.records) if one.at >= since]


async def record_depths(pool: Pool, depths: Depths) -> None:
    """Record the depth every EVERY_S seconds; a reading that fails, for whatever reason, leaves a gap."""
    failed = ""
    while True:
        try:
            depths.records.append(await run_in_threadpool(read_depth, pool))
            failed = ""
        except (PgschedError, DatabaseError):
            failed = ""
        except Exception as error:
            kind = type(error).__name__
            if kind != failed:  # logged when the error begins, not at every reading
                failed = kind
                logger.error("the depth of the queues cannot be read", exc_info=True)
        await asyncio.sleep(EVERY_S)


def read_depth(pool: Pool) -> Depth:
    """Read the depth now."""
    with pool.connection() as conn:
        found = count_open_runs(conn)
    return Depth(time.monotonic(), found["queued"], found["running"], found["scheduled"] + found["waiting"])
