"""The application that `pgsched worker --app bench.peers.pgsched_app:app` runs: a task that does what the peers' do."""

from __future__ import annotations

import asyncio
import time

from bench.peers.record import from_environment, number
from pgsched import App, Run

app = App("bench")
record = from_environment()
SLEEP_S = number("SLEEP_MS", 0) / 1000


@app.task(name="noop")
async def noop(i: int = -1) -> None:
    """Nothing."""
    record.record(i)
    if SLEEP_S:
        await asyncio.sleep(SLEEP_S)


@app.task(name="slot")
async def slot(run: Run) -> None:
    """Note how long after its slot this run started. The server's clock is this machine's."""
    now = time.time()
    at = run.scheduled_at.timestamp() if run.scheduled_at is not None else now
    record.late.append((int(at), now - at))
