"""Drain queues in a test.

Invariant: a real worker and a real leader drain the queues in the test's process, until nothing is left to do.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pgsched.client.application import App
from pgsched.config import Settings, WorkerSettings
from pgsched.db.connection.connect import connect
from pgsched.db.queries.testing import ended_runs, list_runs_to_drain
from pgsched.errors import InputError, PgschedError
from pgsched.leader.election import Leader
from pgsched.testing import database
from pgsched.testing.recorder import Recorder
from pgsched.worker.process import make_worker, process_name

LOOK_S = 0.02


def drain(
    app: App,
    queue: str | Sequence[str] | None = None,
    *,
    scheduled: bool = False,
    concurrency: int = 1,
    timeout: float = 30.0,
    dsn: str | None = None,
) -> dict[str, int]:
    """Run the enqueued runs of the app's tasks, and what they enqueue, until nothing is due any more.

    `queue`: one queue or several; None: all.
    `scheduled`: also run at once what is due later: delayed runs, and failed runs again until no attempt is left.
    `concurrency`: how many attempts run at the same time.
    `timeout`: how long this may take, in seconds.
    `dsn`: the database; None: the app's.

    Returns how many runs ended in which state, such as {"succeeded": 2, "dead": 1}. Raises TimeoutError, naming the
    runs that are left.
    """
    return asyncio.run(drain_async(app, queue, scheduled=scheduled, concurrency=concurrency, timeout=timeout, dsn=dsn))


async def drain_async(
    app: App,
    queue: str | Sequence[str] | None = None,
    *,
    scheduled: bool = False,
    concurrency: int = 1,
    timeout: float = 30.0,  # noqa: ASYNC109  the message says what is left
    dsn: str | None = None,
) -> dict[str, int]:
    """Do the same as `drain`, without blocking the event loop."""
    stands_in: Any = app.database
    if isinstance(stands_in, Recorder):
        raise InputError("drain: a recorder is in the database's place here: call the recorder's own drain()", "app")
    queues = None if queue is None else [queue] if isinstance(queue, str) else list(queue)
    address = dsn if dsn is not None else await asyncio.to_thread(app.database.dsn)
    settings = Settings(
        address, WorkerSettings(concurrency=concurrency, queues=tuple(queues or ()), poll_s=0.1, grace_s=0)
    )
    worker = make_worker(settings, app)
    leader = Leader(address, settings.leader, process_name())
    leading = threading.Thread(target=leader.run, name="pgsched-testing-leader", daemon=True)
    await app.hooks.start([])
    with connect(address, purpose="testing") as conn:
        since = database.clock(conn)
        leading.start()
        working = asyncio.create_task(worker.run())
        try:
            await _until_empty(working, lambda: list_runs_to_drain(conn, list(app.tasks), queues, scheduled), timeout)
        finally:
            worker.stop()
            leader.stop()
            await asyncio.wait({working})
            await asyncio.to_thread(leading.join, 5.0)
            await app.hooks.shutdown()
        working.result()
        return ended_runs(conn, since, queues)


async def _until_empty(working: asyncio.Task[None], look: Callable[[], list[Any]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while left := look():
        if working.done():
            working.result()
            raise PgschedError("the worker ended by itself")
        if time.monotonic() > deadline:
            runs = ", ".join(f"run {run_id} of {task} is {state}" for run_id, task, state in left)
            raise TimeoutError(f"not drained after {timeout_s:g} s: {runs}")
        await asyncio.wait({working}, timeout=LOOK_S)
