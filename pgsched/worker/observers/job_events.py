"""Tell listeners when attempts of jobs begin, and what became of them.

Invariant: a listener changes nothing about a run, and its errors end in the log. A run without a job costs one look at
its claim; before a listener wants a claim, nothing of the worker is wrapped, and no attempt costs a call more.

Listeners: the pings of `jobs.ping_url` (pings.py), and what an app brings along (pgsched.contrib.sentry).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from pgsched import log
from pgsched.app.signals import format_error
from pgsched.core.model import SUCCEEDED, Claim, Key, Outcome, Settlement
from pgsched.db.connection.connect import Connection
from pgsched.execute.base import Executor
from pgsched.execute.python.handler import InlineHandler
from pgsched.threads import run_in_thread
from pgsched.worker.attempts.attempt import EndReason
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.observers.events import NO_EVENTS, WorkerEvents

logger = log.get("worker")
JOB_ID = Claim._fields.index("job_id")
MOST_HELD = 20_000  # claims that are remembered until they are settled; nothing tells of some that are lost


class JobListener(Protocol):
    """What wants to know of attempts of jobs. All but `close` are called on the event loop, and must not block."""

    def wants(self, claim: Claim) -> bool:
        """Check whether the attempt at this claim is of interest."""
        ...

    def begun(self, claim: Claim) -> None:
        """Take an attempt that begins."""
        ...

    def ended(self, claim: Claim, outcome: Outcome, state: str) -> None:
        """Take an attempt whose outcome was written; `state`: that of its run after it."""
        ...

    def close(self) -> None:
        """Send what waits, for at most a few seconds. Called in a thread, when the worker has drained."""
        ...


class JobEvents:
    """An observer that tells listeners of the attempts of jobs; `inner` gets all events as well.

    `wants_times` is a plain value here, because it is read at each attempt; see TimedJobEvents.
    """

    wants_times = False

    def __init__(self, inner: WorkerEvents, listeners: Sequence[JobListener]) -> None:
        self.inner = inner
        self._listeners = listeners
        self._runner: AttemptRunner | None = None
        self._watched: dict[Key, tuple[Claim, list[JobListener]]] = {}
        self._is_wrapped = False

    def attach(self, runner: AttemptRunner) -> None:
        """Give it the worker's runner, whose attempts it tells of."""
        self._runner = runner

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Remember the claims that a listener wants."""
        self.inner.claimed(claims)
        if self._listeners:
            for claim in claims:
                if claim[JOB_ID] is not None:
                    self._note(claim)

    def _note(self, claim: Claim) -> None:
        wanting = [one for one in self._listeners if guarded(partial(one.wants, claim))]
        if not wanting:
            return
        if not self._is_wrapped and self._runner is not None:
            self._is_wrapped = True
            self._wrap(self._runner)
        while len(self._watched) >= MOST_HELD:
            del self._watched[next(iter(self._watched))]
        self._watched[claim.key] = claim, wanting

    def _wrap(self, runner: AttemptRunner) -> None:
        """Wrap the executors, and send attempts that are wanted there instead of running them inline."""
        handler_of = runner.inline.handler_of

        def unless_wanted(claim: Claim) -> InlineHandler | None:
            return None if claim.key in self._watched else handler_of(claim)

        runner.inline.handler_of, runner.inline.looks_at_jobs = unless_wanted, True
        runner.drivers = {kind: ToldExecutor(one, self.begins) for kind, one in runner.drivers.items()}

    def begins(self, claim: Claim) -> None:
        """Tell that an attempt begins."""
        for one in self._watched.get(claim.key, (claim, ()))[1]:
            guarded(partial(one.begun, claim))

    def attempt_ended(self, claim: Claim, started: float, now: float) -> None:
        """Pass the times on."""
        self.inner.attempt_ended(claim, started, now)

    def ending(self, claim: Claim, why: EndReason) -> None:
        """Forget a claim that is lost: nothing more will be known of it."""
        self.inner.ending(claim, why)
        if why is EndReason.LOST:
            self._watched.pop(claim.key, None)

    def settled(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        """Tell of the written outcomes that a listener wants."""
        self.inner.settled(batch, verdicts)
        if not self._watched:
            return
        for one, verdict in zip(batch, verdicts, strict=False):
            claim, wanting = self._watched.pop(one.key, (None, []))
            if claim is None or verdict == "lost":
                continue
            # repeated: the handler's own transaction, or a settlement whose answer was lost, had settled the run before
            after = "succeeded" if one.outcome.result is SUCCEEDED else "dead" if not again(claim, one) else "scheduled"
            state = after if verdict == "repeated" else verdict
            for listener in wanting:
                guarded(partial(listener.ended, claim, one.outcome, state))

    def beat(self, conn: Connection[object]) -> None:
        """Pass on that the database has answered a heartbeat."""
        self.inner.beat(conn)

    async def watch(self) -> None:
        """Run beside the attempts until cancelled; then let the listeners send what waits."""
        try:
            await self.inner.watch()
            await asyncio.Event().wait()
        finally:
            for one in self._listeners:
                await asyncio.shield(run_in_thread(partial(guarded, one.close)))


class TimedJobEvents(JobEvents):
    """The same around an observer that may want times."""

    @property
    def wants_times(self) -> bool:  # type: ignore[override]
        """Whether the times of the next attempt are wanted."""
        return self.inner.wants_times


def job_events(inner: WorkerEvents, listeners: Sequence[JobListener]) -> JobEvents:
    """Return an observer that tells these listeners; `inner`: the observer that gets all events as well."""
    return (JobEvents if inner is NO_EVENTS else TimedJobEvents)(inner, listeners)


class ToldExecutor:
    """An executor that says when an attempt begins."""

    def __init__(self, executor: Executor, begins: Callable[[Claim], None]) -> None:
        self._executor = executor
        self._begins = begins

    @property
    def abandoned(self) -> int:
        """The number of handlers that the wrapped executor has abandoned."""
        return self._executor.abandoned

    async def execute(self, claim: Claim) -> Outcome:
        """Run one attempt."""
        self._begins(claim)
        return await self._executor.execute(claim)

    async def close(self) -> None:
        """Close the wrapped executor."""
        await self._executor.close()


def again(claim: Claim, settlement: Settlement) -> bool:
    """Check whether a failed attempt is followed by another one."""
    return settlement.outcome.retry and claim.attempt < claim.max_attempts


def guarded(call: Callable[[], object]) -> object:
    """Return what the call returns; None if it raises, which is logged."""
    try:
        return call()
    except Exception as error:
        logger.error("an observer of runs failed", error=format_error(error), exc_info=error)
        return None
