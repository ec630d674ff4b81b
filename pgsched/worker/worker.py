"""The worker: claims, executes, settles, and gives everything back when told to stop.

The loop owns the attempts; the heartbeat and the leader have threads of their own. The first stop drains: no new
claims, running handlers get the grace time, the rest is handed back without costing an attempt. The second hurries.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any

from pgsched import log
from pgsched.config import WorkerSettings
from pgsched.db import workers
from pgsched.db.claims import Wanted
from pgsched.db.connect import DatabaseError, connect, explain
from pgsched.errors import PgschedError
from pgsched.execute.base import Executor, kill_after_s
from pgsched.model import Claim, Kind, Outcome, Result, Settlement
from pgsched.worker.claim import Claimer, Pace
from pgsched.worker.lease import Heartbeat, Key, Leases
from pgsched.worker.listen import listen
from pgsched.worker.running import OUTCOMES, Ended, Running
from pgsched.worker.settle import Settler, retry_in_s

logger = log.get("worker")
WATCH_S = 0.25
FLUSH_S = 5.0
ANSWER_S = 1.0
PART_END_S = 2.0


class Worker:
    """One worker on one event loop. `run` returns when drained; it raises PgschedError when no retry can help."""

    def __init__(
        self,
        dsn: str,
        settings: WorkerSettings,
        executors: Mapping[str, Executor],
        registration: workers.Registration,
    ) -> None:
        self.dsn = dsn
        self.settings = settings
        self.executors = executors
        self.registration = registration
        self.leases = Leases(settings.lease_s)
        self.pace = Pace(settings.concurrency)
        self.verdicts: dict[str, int] = {}
        self._running: dict[Key, Running] = {}
        self._buffer: deque[Claim] = deque()
        self._abandoned = 0
        self._stops = 0
        self._stop_event = asyncio.Event()
        self._changed = asyncio.Event()
        self._fatal: PgschedError | None = None

    def stop(self) -> None:
        """First call: drain. Second call: hurry. Call it on the loop's thread."""
        self._stops += 1
        self._stop_event.set()
        self._changed.set()

    def fail(self, error: PgschedError) -> None:
        """End the worker with this error (from a helper thread, through the loop)."""
        self._fatal = self._fatal or error
        self.stop()
        self.stop()

    async def run(self) -> None:
        """Work until stopped."""
        loop = asyncio.get_running_loop()
        try:
            with connect(self.dsn, purpose="worker") as conn:
                worker_id = workers.start(conn, self.registration)
        except DatabaseError as error:
            raise explain(error) from error
        logger.info("started", worker=self.registration.name, id=worker_id, concurrency=self.settings.concurrency,
                    kinds=self.registration.kinds, tasks=len(self.registration.tasks))  # fmt: skip
        wanted = Wanted(worker_id, self.settings.lease_s, self._whole_kinds(), self.registration.tasks)
        self._settler = Settler(self.dsn, self.registration.name, self.settings.settle_wait_s, self._settled)
        self._claimer = Claimer(self.dsn, wanted, self.settings.queues, self.settings.poll_s, self._room, self._take)
        heartbeat = Heartbeat(
            self.dsn,
            worker_id,
            self.leases,
            lambda denied, cancel: loop.call_soon_threadsafe(self._beaten, denied, cancel),
            lambda error: loop.call_soon_threadsafe(self.fail, error),
            lambda: self._abandoned + sum(executor.abandoned for executor in set(self.executors.values())),
        )
        heartbeat.start()
        try:
            await self._work(heartbeat)
        finally:
            heartbeat.stop()
            for executor in set(self.executors.values()):
                await executor.close()
            await asyncio.to_thread(heartbeat.join, 5.0)
            logger.info("stopped", worker=self.registration.name, **self.verdicts)
        if self._fatal is not None:
            raise self._fatal

    async def _work(self, heartbeat: Heartbeat) -> None:
        """Run the parts until a stop, then drain: claims first, settlements last."""
        settler = self._part(self._settler.run())
        claimer = self._part(self._claimer.run())
        others = [
            self._part(listen(self.dsn, self._claimer.wake, self._cancel_asked)),
            self._part(self._watch_deadlines()),
        ]
        await self._stop_event.wait()
        self._claimer.stop()
        heartbeat.drain()
        # a claim on its way gets its answer, so that what it takes is handed back and not left to expire
        await asyncio.wait({claimer}, timeout=ANSWER_S)
        await self._end_parts(claimer)
        await self._claimer.close()
        await self._drain()
        await self._end_parts(*others, settler)

    async def _end_parts(self, *parts: asyncio.Task[None]) -> None:
        """Cancel, twice if need be: the first makes psycopg cancel the statement and wait for a server to answer."""
        for part in parts:
            part.cancel()
        await asyncio.wait(parts, timeout=PART_END_S)
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)

    def _part(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A background part; if it fails, so does the worker: never silent."""
        task = asyncio.get_running_loop().create_task(coroutine)

        def ended(done: asyncio.Task[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                logger.error("stopping", error=str(error))
                self.fail(error if isinstance(error, PgschedError) else PgschedError(f"worker failed: {error!r}"))

        task.add_done_callback(ended)
        return task

    # ---- room and claims

    def _whole_kinds(self) -> list[str]:
        return [kind for kind in self.executors if kind != Kind.PYTHON]

    def _room(self) -> int:
        if self._stop_event.is_set():
            return 0
        free = self.settings.concurrency - len(self._running)
        ahead = self.pace.prefetch()
        want = free + ahead - len(self._buffer)
        # refill the prefetch when half of it is used, not one by one
        return want if free > len(self._buffer) or want > ahead // 2 else 0

    def _take(self, claims: list[Claim], sent_at: float) -> None:
        self.leases.add(claims, sent_at)
        self._buffer.extend(claims)
        if not self._stop_event.is_set():  # else `_drain` hands them back
            self._fill()

    def _fill(self) -> None:
        """Start claims from the prefetch while there are free slots."""
        while self._buffer and len(self._running) < self.settings.concurrency:
            claim = self._buffer.popleft()
            if (claim.id, claim.token) in self._running:
                continue
            if self.leases.past((claim.id, claim.token), time.monotonic()):
                self._hand_back(claim, Ended.DEADLINE)
                continue
            running = Running(claim, self._finished)
            self._running[(claim.id, claim.token)] = running
            running.start(self.executors[claim.kind].execute(claim))

    def _finished(self, running: Running, outcome: Outcome | None) -> None:
        claim = running.claim
        self._running.pop((claim.id, claim.token), None)
        self._changed.set()
        self._abandoned += running.abandoned
        self.pace.took(time.monotonic() - running.started)
        if outcome is None:
            self.leases.drop((claim.id, claim.token))
            logger.warning("claim lost, handler stopped", run=claim.id, attempt=claim.attempt)
        else:
            self._settle(claim, outcome)
        if self._stop_event.is_set():
            return
        self._fill()
        if self._room() > 0:
            self._claimer.wake()

    def _settle(self, claim: Claim, outcome: Outcome) -> None:
        if outcome.result not in (Result.SUCCEEDED, Result.INTERRUPTED):
            logger.info("attempt ended", run=claim.id, task=claim.task[:80], attempt=claim.attempt,
                        outcome=str(outcome.result), error=(outcome.error or "")[:200])  # fmt: skip
        self._settler.put(Settlement(claim, outcome, retry_in_s(claim, outcome, random.random)))

    def _settled(self, settlement: Settlement, verdict: str) -> None:
        claim = settlement.claim
        self.leases.drop((claim.id, claim.token))
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1

    # ---- losing and cancelling

    def _beaten(self, denied: list[Key], cancel: frozenset[Key]) -> None:
        for key in denied:
            self._end(key, Ended.LOST)
        for key in cancel:
            self._end(key, Ended.CANCEL)

    def _cancel_asked(self, run_id: int) -> None:
        for key in [key for key in self._running if key[0] == run_id]:
            self._end(key, Ended.CANCEL)
        for claim in [claim for claim in self._buffer if claim.id == run_id]:
            self._end((claim.id, claim.token), Ended.CANCEL)

    def _end(self, key: Key, why: Ended) -> None:
        running = self._running.get(key)
        if running is not None:
            running.end(why)
            return
        for claim in [claim for claim in self._buffer if (claim.id, claim.token) == key]:
            self._buffer.remove(claim)
            self._hand_back(claim, why)

    def _hand_back(self, claim: Claim, why: Ended) -> None:
        """Let go of a claim that was never started."""
        if why is Ended.LOST:
            self.leases.drop((claim.id, claim.token))
        else:
            self._settle(claim, Outcome(OUTCOMES[why], error=why.value))

    async def _watch_deadlines(self) -> None:
        """Stop handlers whose lease could not be renewed in time, before anyone else may own their runs."""
        while True:
            await asyncio.sleep(WATCH_S)
            for key in self.leases.expired(time.monotonic()):
                self._end(key, Ended.DEADLINE)

    # ---- stopping

    async def _drain(self) -> None:
        logger.info("draining", running=len(self._running), grace_s=self.settings.grace_s)
        for claim in list(self._buffer):
            self._end((claim.id, claim.token), Ended.SHUTDOWN)
        await self._until_idle(self.settings.grace_s, hurry=True)
        for running in list(self._running.values()):
            running.end(Ended.SHUTDOWN)
        longest = max((kill_after_s(running.claim) for running in self._running.values()), default=0.0)
        await self._until_idle(max(longest, 10.0) + FLUSH_S + 1, hurry=False)
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._settler.flushed()
        except TimeoutError:
            logger.error("stopped with unsettled outcomes: they run again when their leases end")

    async def _until_idle(self, seconds: float, *, hurry: bool) -> None:
        """Wait until no handler runs, the time is over, or (with `hurry`) a second stop."""
        try:
            async with asyncio.timeout(seconds):
                while self._running and not (hurry and self._stops > 1):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
