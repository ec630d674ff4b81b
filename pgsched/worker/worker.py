"""The worker: claims runs, executes them, settles their outcomes, and hands all claims back when stopped.

The event loop owns the attempts. The heartbeat and the leader have threads of their own. How a worker ends: ending.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from types import CodeType

from pgsched import log
from pgsched.config import WorkerSettings
from pgsched.core.model import Claim, Kind
from pgsched.db.connection.dsn import describe_database
from pgsched.db.queries.runs import workers
from pgsched.db.queries.runs.claims import Vitals, WorkerOffer
from pgsched.execute.base import Executor, cap_kill_after, set_default_timeout
from pgsched.execute.output.record import Journal
from pgsched.execute.python.executor import PythonExecutor
from pgsched.threads import run_in_thread
from pgsched.worker import log_lines
from pgsched.worker.attempts.attempt import EndReason
from pgsched.worker.attempts.misfits import Misfits
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.claiming.claimer import Claimer
from pgsched.worker.ending import WorkerEnd
from pgsched.worker.heartbeat import DECLARE_AGAIN_S, Heartbeat, HeartbeatCalls
from pgsched.worker.leases import Leases
from pgsched.worker.listener import listen
from pgsched.worker.observers.events import NO_EVENTS, WorkerEvents
from pgsched.worker.observers.run_lines import RunLines
from pgsched.worker.output import LogPump
from pgsched.worker.parts import Parts
from pgsched.worker.registration import register
from pgsched.worker.settling.outcomes import Outcomes
from pgsched.worker.settling.settler import Settler
from pgsched.worker.supervision.supervisor_link import READY, SPENT
from pgsched.worker.watching.memory_limit import watch_memory
from pgsched.worker.watching.stacks import HandlerFinder
from pgsched.worker.watching.watchdog import Watchdog

logger = log.get("worker")
WATCH_S = 0.25
ANSWER_S = 1.0


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
        """Make the worker's parts.

        `journal`: receives output and progress of the executors. `events`: the observers of claims and attempts.
        """
        self.dsn = dsn
        self.settings = settings
        self.registration = registration
        self.events = lines = RunLines(events)
        self.heartbeat: Heartbeat | None = None
        self.watchdog: Watchdog | None = None
        self.named = False  # claims include each run's name outside of the database
        self._registered: tuple[int, bool] | None = None  # its id, and whether all its jobs are declared
        journal = journal or Journal()
        leases, settler = Leases(settings.lease_s), Settler(dsn, registration.name, settings.settle_wait_s)
        self.ending = WorkerEnd()
        self.outcomes = Outcomes(settler, LogPump(dsn, journal), journal, leases, executors, lines, self._more_room)
        self.runner = AttemptRunner(
            executors, settings.concurrency, leases, self.outcomes.take, self._more_room, self.ending.bug,
            settings.max_runs or 0, lines,
        )  # fmt: skip
        settler.on_fatal, self.ending.on_stop = self.ending.fail, self.runner.stop
        settler.more_to_come = lambda: bool(len(self.runner) or self.runner.buffer.claims)
        self.runner.buffer.on_last = lambda: self.ending.retire(SPENT)

    def stop(self) -> None:
        """Drain at the first call, hurry at the second. Call it on the event loop's thread."""
        self.ending.stop()

    @property
    def stopping(self) -> bool:
        """Whether the worker takes no more runs."""
        return self.ending.draining.is_set()

    @property
    def verdicts(self) -> dict[str, int]:
        """How many runs have reached each state."""
        return self.outcomes.verdicts

    def register(self) -> int:
        """Register this worker and its jobs unless that is done; return the worker's id. Raises PgschedError."""
        if self._registered is None:
            self._registered = register(self.dsn, self.registration)
        return self._registered[0]

    async def run(self) -> None:
        """Work until stopped."""
        worker_id = self.register()
        logger.info(
            "started",
            **log_lines.ready_fields(worker_id, self.settings, self.registration, describe_database(self.dsn)),
        )
        self.ending.report_state(READY)
        self._claimer = self._make_claimer(worker_id)
        heartbeat = self.heartbeat = self._make_heartbeat(worker_id)
        finder = HandlerFinder(self.runner.running, self._code_of, self.registration.tasks)
        watchdog = self.watchdog = Watchdog(finder, dumps=not self.ending.inside)
        watchdog.on_change = heartbeat.nudge.beat_soon
        watchdog.on_blocked = lambda who: self.ending.give_up(who, heartbeat, self.settings.grace_s)
        watchdog.start()
        heartbeat.start()
        try:
            await self._work(heartbeat, watchdog)
        finally:
            heartbeat.nudge.stop()
            watchdog.stop()
            for executor in set(self.runner.executors.values()):
                await executor.close()
            await run_in_thread(partial(heartbeat.join, 5.0))
            logger.info("stopped", **log_lines.stop_fields(self.registration.name, self.verdicts))
        if self.ending.fatal is not None:
            raise self.ending.fatal

    async def _work(self, heartbeat: Heartbeat, watchdog: Watchdog) -> None:
        """Run the parts until a stop, then drain: claims first, settlements last."""
        parts = Parts(self.ending.draining.is_set, self.ending.bug)
        settler = parts.start(self.outcomes.settler.run())
        claimer = parts.start(self._claimer.run())
        logs = parts.start(self.outcomes.logs.run())
        others = [
            parts.start(listen(self.dsn, self._claimer.heard, heartbeat.nudge.look_soon)),
            parts.start(self._watch_deadlines(watchdog)),
            parts.start(self.events.watch()),
        ]
        if self.settings.max_memory_mb is not None:
            others.append(parts.start(watch_memory(self.settings.max_memory_mb, self.ending.retire)))
        try:
            await self.ending.draining.wait()
            self._claimer.stop()
            heartbeat.drain()
            # wait for the answer to a claim on its way, so that its runs are handed back and need not expire
            await asyncio.wait({claimer}, timeout=ANSWER_S)
            await parts.end(claimer)
            await self._claimer.close()
            await self.ending.drain(self.runner, self.outcomes, self.settings.grace_s)
        except asyncio.CancelledError:  # a program leaves the drain, and its event loop goes on
            self.ending.draining.set()
            self.runner.stop()
            self.runner.end_all(EndReason.SHUTDOWN)
            await parts.end(claimer)
            await self._claimer.close()
            raise
        finally:
            await parts.end(*others, settler, logs)

    # ---- its parts

    def _make_claimer(self, worker_id: int) -> Claimer:
        settings, runner = self.settings, self.runner
        kinds = [kind for kind in runner.executors if kind != Kind.TASK]  # every task of these kinds
        wanted = WorkerOffer(worker_id, settings.lease_s, kinds, self.registration.tasks, self.named)
        claimer = Claimer(
            self.dsn, wanted, settings.queues, settings.poll_s, self._room, self._take, runner.is_idle, runner.places
        )
        misfits = Misfits(self.dsn, self.registration)
        misfits.claimer = claimer
        for executor in runner.executors.values():
            if isinstance(executor, PythonExecutor):
                executor.attach(runner.attempt_of, self.dsn, misfits.outcome)
        return claimer

    def _make_heartbeat(self, worker_id: int) -> Heartbeat:
        soon = asyncio.get_running_loop().call_soon_threadsafe
        calls = HeartbeatCalls(
            on_claims_changed=lambda denied, cancel: soon(self.runner.beaten, denied, cancel),
            on_fatal=lambda error: soon(self.ending.fail, error),
            vitals=self._vitals,
            on_drain=lambda by: soon(self.ending.retire, f"{by} asked it to drain"),
            on_registered=lambda number: soon(self._claimer.known_as, number),
            after_beat=self.events.beat,
        )
        heartbeat = Heartbeat(self.dsn, worker_id, self.registration, self.runner.leases, calls)
        if self._registered is not None and not self._registered[1]:
            heartbeat.declare_at = time.monotonic() + DECLARE_AGAIN_S
        return heartbeat

    # ---- calls between the parts

    def _take(self, claims: list[Claim], sent_at: float) -> None:
        cap_kill_after(claims, self.settings.kill_after_most_s)
        set_default_timeout(claims, self.settings.default_timeout_s)
        self.runner.take(claims, sent_at)

    def _vitals(self) -> Vitals:
        """Return what the heartbeat reports. Called in its thread."""
        runner = self.runner
        begun = frozenset(running.key for running in runner.running() if running.begun)
        abandoned = runner.capacity.abandoned + sum(one.abandoned for one in set(runner.executors.values()))
        return Vitals(begun, abandoned, blocked=self.watchdog.blocked() if self.watchdog else None)

    def _code_of(self, task: str) -> CodeType | None:
        python = self.runner.executors.get(Kind.TASK)
        return python.code_of(task) if isinstance(python, PythonExecutor) else None

    def _room(self) -> int:
        return 0 if self.outcomes.is_behind() else self.runner.room()

    def _more_room(self) -> None:
        claimer = self._claimer
        if (claimer.starved or (claimer.wants_place and self.runner.places() > 0)) and self._room() > 0:
            claimer.wake()

    async def _watch_deadlines(self, watchdog: Watchdog) -> None:
        """Stop handlers whose lease could not be renewed in time, before another worker may own their runs.

        Also hand back claims that have waited too long for a place.
        """
        while True:
            await asyncio.sleep(WATCH_S)
            watchdog.turned()
            self.runner.end(self.runner.leases.expired(time.monotonic()), EndReason.DEADLINE)
            self.runner.unpark()
            self._more_room()
