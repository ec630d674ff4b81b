"""The app of `pgsched worker --app bench.peers.pgsched_app:app`: its task does the same as those of the peers."""

from __future__ import annotations

import asyncio
import os
import threading
import time

from bench.peers.record import from_environment, number
from pgsched import App, Run

app = App("bench")
record = from_environment()
SLEEP_S = number("SLEEP_MS", 0) / 1000
RECORDING = threading.Lock()


async def nothing(i: int = -1) -> None:
    """Record the number, and do nothing else."""
    record.record(i)
    if SLEEP_S:
        await asyncio.sleep(SLEEP_S)


def plain(i: int = -1) -> None:
    """Record the number in one of many threads, and do nothing else."""
    with RECORDING:
        record.record(i)
    if SLEEP_S:
        time.sleep(SLEEP_S)


noop = app.task(name="noop")(plain if "BENCH_PLAIN" in os.environ else nothing)


@app.task(name="slot")
async def slot(run: Run) -> None:
    """Record how long after its slot this run started. The server's clock is this machine's clock."""
    now = time.time()
    at = run.scheduled_at.timestamp() if run.scheduled_at is not None else now
    record.late.append((int(at), now - at))
