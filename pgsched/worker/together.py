"""The workers of one process beside a leader candidate, from their registration to the end of the last one.

Invariant: the process leads only while all of its workers are registered. Jobs that the code no longer declares must
not fire again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pgsched.config import Settings
from pgsched.errors import MemoryReached, PgschedError
from pgsched.leader.election import Leader
from pgsched.threads import run_in_thread
from pgsched.worker.alerts import alerting
from pgsched.worker.ending import WorkerEnd
from pgsched.worker.supervision.supervisor_link import DRAINED, READY, SPENT, SWOLLEN
from pgsched.worker.worker import Worker

LEADER_END_S = 3.0


async def work_together(workers: Sequence[Worker], leader: Leader, settings: Settings) -> None:
    """Register the workers, let the leader stand for election, and work until all workers are drained.

    When one worker takes no more runs, the others drain. Raises the first PgschedError with which one ended.
    """
    thread = threading.Thread(target=leader.run, name="pgsched-leader", daemon=True)
    try:
        for worker in workers:
            await run_in_thread(worker.register)
        if settings.worker.leader:
            thread.start()
        with alerting(settings, leader, stands=settings.worker.leader):
            await run_all(workers)
    finally:
        if thread.is_alive():
            leader.stop()
            await run_in_thread(partial(thread.join, LEADER_END_S))


async def run_all(workers: Sequence[Worker]) -> None:
    """Run the workers until all are drained; when one takes no more runs, the others end with their runs as well."""
    if len(workers) == 1:
        return await workers[0].run()
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        await drain_as_one(workers, running)
    except asyncio.CancelledError:
        for one in running:
            one.cancel()
        await asyncio.wait(running)
        raise
    for one in running:
        if (error := one.exception()) is not None:
            raise error if isinstance(error, PgschedError) else PgschedError(f"worker failed: {error!r}")
    return None


async def drain_as_one(workers: Sequence[Worker], running: Sequence[asyncio.Future[None]]) -> None:
    """Wait for the end of all workers: they drain once one drains, and within the grace time once one has failed."""
    leaving = [asyncio.ensure_future(worker.ending.draining.wait()) for worker in workers]
    first: list[asyncio.Future[Any]] = [*running, *leaving]
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in leaving:
            waiting.cancel()
    for worker in workers:
        worker.ending.retire("another worker of this process ends")
    left = {*running}
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        if any(has_failed(one) for one in done):
            for worker in workers:
                worker.ending.stop_at_least(1)


def has_failed(ended: asyncio.Future[None]) -> bool:
    """Check whether the worker ended by an error; one that grew too large has not failed."""
    return not ended.cancelled() and not isinstance(ended.exception(), MemoryReached | None)


def report_as_one(endings: Sequence[WorkerEnd], say: Callable[[str], object]) -> None:
    """Report the state of all workers of a process: ready once all are, leaving as soon as the first one leaves.

    `say(word)`: tells the supervisor, which starts a successor at the first word of leaving.
    """
    words: list[str] = []

    def report(word: str) -> None:
        words.append(word)
        if word == READY:
            if words.count(READY) == len(endings):
                say(READY)
        elif len(words) == words.count(READY) + 1:
            say(word if word in (SPENT, SWOLLEN) else DRAINED)

    for ending in endings:
        ending.report_state = report
