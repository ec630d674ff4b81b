"""The worker: claims, executes, settles, and gives everything back when told to stop.

The loop owns the attempts; the heartbeat and the leader have threads of their own. The first stop drains: no new
claims, running handlers get the grace time, the rest is handed back without costing an attempt. The second hurries.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from types import CodeType
from typing import Any

from pgsched import log
from pgsched.config import WorkerSettings
from pgsched.core.model import SUCCEEDED, Claim, Kind, Outcome, Result, Settlement
from pgsched.db.connection.dsn import place
from pgsched.db.queries.runs import workers
from pgsched.db.queries.runs.claims import Vitals, Wanted
from pgsched.errors import DatabaseUnreachable, PgschedError
from pgsched.execute.base import Executor, cap_kill_after
from pgsched.execute.output.record import Journal
from pgsched.execute.python.executor import PythonExecutor
from pgsched.threads import apart
from pgsched.worker import log_lines
from pgsched.worker.attempts.attempt import Ended, job_of
from pgsched.worker.attempts.misfits import Misfits
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.claiming.claimer import Claimer
from pgsched.worker.heartbeat import DECLARE_AGAIN_S, Heartbeat, HeartbeatCalls
from pgsched.worker.leases import Leases
from pgsched.worker.listener import listen
from pgsched.worker.observers.events import NO_EVENTS, WorkerEvents
from pgsched.worker.output import LogPump
from pgsched.worker.registration import register
from pgsched.worker.settling.settler import Settler, retry_in_s
from pgsched.worker.supervision.supervisor_link import READY, SPENT
from pgsched.worker.watching.memory_limit import watch_memory
from pgsched.worker.watching.stacks import HandlerFinder
from pgsched.worker.watching.watchdog import Watchdog

logger = log.get("worker")
WATCH_S = 0.25
FLUSH_S = 5.0
ANSWER_S = 1.0
PART_END_S = 2.0
STUCK_S = 15.0


class Worker:
    """One worker on one event loop. `run` returns when drained; it raises PgschedError when no retry can help."""

    def __init__(
        self,
        dsn: str,
        settings: WorkerSettings,
        executors: Mapping[str, Executor],
        registration: workers.Registration,
        journal: Journal | None = None,
        events: WorkerEvents = NO_EVENTS,
    ) -> None:
        """`journal`: what the executors write output and progress to. `events`: who learns what
        becomes of claims and attempts."""
        self.journal = journal or Journal()
        self.dsn = dsn
        self.settings = settings
        self.executors = executors
        self.registration = registration
        self.leases = Leases(settings.lease_s)
        self.events = events
        self.heartbeat: Heartbeat | None = None
        self.watchdog: Watchdog | None = None
        self.runner = AttemptRunner(
            executors, settings.concurrency, self.leases, self._settle, self._more_room, self._bug,
            settings.max_runs or 0, events,
        )  # fmt: skip
        self.runner.buffer.on_last = lambda: self.retire(SPENT)
        self.settler = Settler(dsn, registration.name, settings.settle_wait_s, self._settled)
        self.settler.on_fatal, self.settler.on_taken = self.fail, self._more_room
        self.misfits = Misfits(dsn, registration)
        for executor in executors.values():
            if isinstance(executor, PythonExecutor):
                executor.attach(self.runner.attempt_of, dsn, self.misfits.outcome)
        self.verdicts: dict[str, int] = {}
        self.named = False  # do claims say what each run is called outside of the database?
        self._id: int | None = None
        self._declared = True
        self._stops = 0
        self._heard_at: float | None = None
        self._stop_event = asyncio.Event()
        self._fatal: PgschedError | None = None
        self.told_of: Callable[[Claim], dict[str, Any]] = job_of  # what log lines say of an attempt beside its run
        self.tell: Callable[[str], object] = lambda word: None  # a supervisor, what becomes of this worker

    def stop(self) -> None:
        """First call: drain. Second call: hurry. Call it on the loop's thread."""
        self._stops += 1
        self._stop_event.set()
        self.runner.stop()

    def heard(self) -> None:
        """A signal asks to stop. Called wherever the main thread is, also while the loop is blocked."""
        self._heard_at = self._heard_at or time.monotonic()

    def stop_at_least(self, times: int) -> None:
        """As after so many stops."""
        while self._stops < times:
            self.stop()

    @property
    def stopping(self) -> bool:
        """Does it take no more runs?"""
        return self._stop_event.is_set()

    def retire(self, why: str, error: PgschedError | None = None) -> None:
        """Take no more, and end when what runs has ended by itself; with this error if there is one."""
        if not self._stop_event.is_set():
            logger.info("retiring", why=why, **({"error": str(error)} if error else {}))
            self._fatal = error
            self._stop_event.set()
            self.runner.stop()
            self.tell(why)

    def fail(self, error: PgschedError) -> None:
        """End the worker with this error (from a helper thread, through the loop)."""
        self._fatal = self._fatal or error
        self.stop()
        self.stop()

    def register(self) -> int:
        """Have the database know this worker and its jobs, if it does not yet; the worker's id. Raises PgschedError."""
        if self._id is None:
            self._id, self._declared = register(self.dsn, self.registration)
        return self._id

    async def run(self) -> None:
        """Work until stopped."""
        loop = asyncio.get_running_loop()
        worker_id = self.register()
        logger.info("started", **log_lines.ready(worker_id, self.settings, self.registration, place(self.dsn)))
        self.tell(READY)
        wanted = Wanted(worker_id, self.settings.lease_s, self._whole_kinds(), self.registration.tasks, self.named)
        self._logs = LogPump(self.dsn, self.journal)
        self._claimer = Claimer(
            self.dsn, wanted, self.settings.queues, self.settings.poll_s, self._room, self._take,
            self.runner.is_idle, self.runner.places,
        )  # fmt: skip
        self.misfits.claimer = self._claimer
        finder = HandlerFinder(self.runner.running, self._code_of, self.registration.tasks)
        self._watchdog = self.watchdog = Watchdog(finder)
        heartbeat = self.heartbeat = Heartbeat(
            self.dsn,
            worker_id,
            self.registration,
            self.leases,
            HeartbeatCalls(
                on_beat=lambda denied, cancel: loop.call_soon_threadsafe(self.runner.beaten, denied, cancel),
                on_fatal=lambda error: loop.call_soon_threadsafe(self.fail, error),
                vitals=self._vitals,
                on_drain=lambda by: loop.call_soon_threadsafe(self.retire, f"{by} asked it to drain"),
                on_registered=lambda number: loop.call_soon_threadsafe(self._claimer.known_as, number),
                after_beat=self.events.beat,
            ),
        )
        if not self._declared:
            heartbeat.declare_at = time.monotonic() + DECLARE_AGAIN_S
        self._watchdog.on_news = heartbeat.nudge.beat_soon
        self._watchdog.on_blocked = lambda who: self._give_up(who, heartbeat)
        self._watchdog.start()
        heartbeat.start()
        try:
            await self._work(heartbeat)
        finally:
            heartbeat.nudge.stop()
            self._watchdog.stop()
            for executor in set(self.executors.values()):
                await executor.close()
            await apart(partial(heartbeat.join, 5.0))
            logger.info("stopped", worker=self.registration.name, **self.verdicts)
        if self._fatal is not None:
            raise self._fatal

    async def _work(self, heartbeat: Heartbeat) -> None:
        """Run the parts until a stop, then drain: claims first, settlements last."""
        settler = self._part(self.settler.run())
        claimer = self._part(self._claimer.run())
        logs = self._part(self._logs.run())
        others = [
            self._part(listen(self.dsn, self._claimer.heard, heartbeat.nudge.look_soon)),
            self._part(self._watch_deadlines()),
            self._part(self.events.watch()),
        ]
        if self.settings.max_memory_mb is not None:
            others.append(self._part(watch_memory(self.settings.max_memory_mb, self.retire)))
        await self._stop_event.wait()
        self._claimer.stop()
        heartbeat.drain()
        # a claim on its way gets its answer, so that what it takes is handed back and not left to expire
        await asyncio.wait({claimer}, timeout=ANSWER_S)
        await self._end_parts(claimer)
        await self._claimer.close()
        await self._drain()
        await self._end_parts(*others, settler, logs)

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
            if done.cancelled():
                if not self._stop_event.is_set():  # by a handler that cancels whatever task it finds
                    self._bug(PgschedError("a part of the worker was cancelled from outside"))
            elif (error := done.exception()) is not None:
                self._bug(error)

        task.add_done_callback(ended)
        return task

    # ---- what the parts tell each other

    def _whole_kinds(self) -> list[str]:
        return [kind for kind in self.executors if kind != Kind.TASK]

    def _take(self, claims: list[Claim], sent_at: float) -> None:
        cap_kill_after(claims, self.settings.kill_after_most_s)
        self.runner.take(claims, sent_at)

    def _settle(self, claims: Sequence[Claim], outcome: Outcome) -> None:
        if outcome.result is SUCCEEDED:
            self._put([Settlement.of(claim, outcome) for claim in claims])
            return
        for claim in claims:
            self._settle_other(claim, outcome)

    def _settle_other(self, claim: Claim, outcome: Outcome) -> None:
        if outcome.result not in (Result.INTERRUPTED, Result.RELEASED):
            attempt = {"run": claim.id, "task": claim.task[:80], "attempt": claim.attempt, **self.told_of(claim)}
            log_lines.ended(outcome, **attempt)
        if outcome.result in (Result.TIMED_OUT, Result.CRASHED):
            executor = self.executors.get(claim.kind)
            if isinstance(executor, PythonExecutor):
                executor.ended_badly(claim, outcome)
        self._put([Settlement.of(claim, outcome, retry_in_s(claim, outcome, random.random))])

    def _vitals(self) -> Vitals:
        """For the heartbeat, from its thread."""
        begun = frozenset(running.key for running in self.runner.running() if running.begun)
        abandoned = self.runner.capacity.abandoned + sum(one.abandoned for one in set(self.executors.values()))
        return Vitals(begun, abandoned, blocked=self.watchdog.blocked() if self.watchdog else None)

    def _code_of(self, task: str) -> CodeType | None:
        python = self.executors.get(Kind.TASK)
        return python.code_of(task) if isinstance(python, PythonExecutor) else None

    def _put(self, settlements: Sequence[Settlement]) -> None:
        if not self.journal.unwritten:
            self.settler.queue.put(settlements)
            return
        for settlement in settlements:
            self._logs.before(settlement.key, partial(self.settler.queue.put, [settlement]))

    def _room(self) -> int:
        return 0 if self.settler.queue.is_behind(self._logs.held) else self.runner.room()

    def _more_room(self) -> None:
        claimer = self._claimer
        if (claimer.starved or (claimer.wants_place and self.runner.places() > 0)) and self._room() > 0:
            claimer.wake()

    def _settled(self, batch: list[Settlement], verdicts: list[str]) -> None:
        self.leases.drop(batch)
        self.events.settled(batch, verdicts)
        if "dead" in verdicts:
            log_lines.settled(batch, verdicts)
        for verdict, count in Counter(verdicts).items():
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + count
        self._more_room()

    def _bug(self, error: BaseException) -> None:
        logger.error("stopping", error=str(error))
        self.fail(error if isinstance(error, PgschedError) else PgschedError(f"worker failed: {error!r}"))

    async def _watch_deadlines(self) -> None:
        """Stop handlers whose lease could not be renewed in time, before anyone else may own their runs; and let go
        of claims that wait for a place."""
        while True:
            await asyncio.sleep(WATCH_S)
            self._watchdog.turned()
            self.runner.end(self.leases.expired(time.monotonic()), Ended.DEADLINE)
            self.runner.unpark()
            self._more_room()

    # ---- stopping

    def _give_up(self, who: str, heartbeat: Heartbeat) -> None:
        """The loop is blocked: end the process if it has been told to stop and nothing else will. (From the watchdog's
        thread.)"""
        if self._heard_at is not None and time.monotonic() > self._heard_at + self.settings.grace_s + STUCK_S:
            logger.error("ending at once: the event loop is blocked and hears no stop", by=who)
            heartbeat.nudge.stop()
            heartbeat.join(3.0)
            os._exit(1)

    async def _drain(self) -> None:
        self.runner.hand_back()
        if not self._stops:  # nobody asked: what runs has all the time it needs, until somebody does
            await self.runner.idle(lambda: self._stops > 0)
        found = self.runner.running()
        running = {"runs": log_lines.running(found), "hint": log_lines.HURRY} if found else {}
        logger.info("draining", running=len(self.runner), grace_s=self.settings.grace_s, **running)
        telling = asyncio.create_task(log_lines.tell_what_runs(self.runner.running))
        await self._until_idle(self.settings.grace_s, hurry=True)
        longest = self.runner.end_all(Ended.SHUTDOWN)
        await self._until_idle(max(longest, 10.0) + FLUSH_S + 1, hurry=False)
        telling.cancel()
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._logs.finished()
                await self.settler.queue.flushed()
        except TimeoutError:
            self._fatal = self._fatal or DatabaseUnreachable(
                "stopped with unsettled outcomes: the database took no answer, so they run again when their leases end"
            )
            logger.error("stopped with unsettled outcomes: they run again when their leases end")

    async def _until_idle(self, seconds: float, *, hurry: bool) -> None:
        """Wait until no handler runs, the time is over, or (with `hurry`) a second stop."""
        try:
            async with asyncio.timeout(seconds):
                await self.runner.idle(lambda: hurry and self._stops > 1)
        except TimeoutError:
            pass
