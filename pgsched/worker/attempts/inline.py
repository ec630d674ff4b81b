"""Inline attempts: async functions called without an executor, one after the other in one coroutine.

A handler qualifies that needs only its arguments and the Run. Most of these handlers never wait, and then an attempt
costs a few function calls. The first attempt that waits is driven to its end like any other attempt (attempt.py).
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from pgsched import log
from pgsched.app.control import Control
from pgsched.app.run import Run
from pgsched.core.model import DONE, Claim, Outcome
from pgsched.execute.outcomes import outcome_of_value
from pgsched.execute.python.executor import continue_awaiting, end_record, outcome_of_raise
from pgsched.execute.python.handler import InlineHandler
from pgsched.worker.attempts.attempt import RunningAttempt
from pgsched.worker.attempts.attempt_tasks import AttemptTask, is_changed
from pgsched.worker.attempts.capacity import Capacity
from pgsched.worker.attempts.claim_buffer import ClaimBuffer
from pgsched.worker.attempts.time_slice import TimeSlice
from pgsched.worker.observers.events import WorkerEvents


class AttemptSink(Protocol):
    """The receiver of inline attempts: the worker's AttemptRunner."""

    settle: Callable[[Sequence[Claim], Outcome], None]
    events: WorkerEvents

    def report(self, claim: Claim, outcome: Outcome | None, started: float, now: float) -> None:
        """Take an attempt that has ended."""
        ...

    def keep_pace(self, seconds: float, now: float, count: int = 1) -> None:
        """Note that `count` attempts have ended, which took `seconds` each."""
        ...

    def abandon(self, running: RunningAttempt) -> None:
        """Give up an attempt that does not stop."""
        ...


class InProgress:
    """The attempts that one task makes in a time slice, one after the other: their number, and the last attempt.

    - `ended_count`: how many have ended.
    - `is_over`: the last attempt is reached; the fields below describe it.
    - `waits`: the last attempt waits.
    - `last_attempt`: the outcome or the waiting coroutine of the last attempt; None: it has not begun.
    - `context_before`: a copy of the context in which the last attempt began.
    - `started`: when the last attempt began, in monotonic seconds.
    - `run`: the Run of the last attempt's handler, if the handler takes one.
    - `running`: the last attempt, if its handler takes a Run.
    - `succeeded_claims`: claims that succeeded with nothing to store; they are settled together.
    """

    ended_count = 0
    is_over = False
    waits = False
    claim: Claim
    last_attempt: Outcome | Coroutine[Any, Any, Any] | None = None
    context_before: contextvars.Context
    started: float
    run: Run | None = None
    running: RunningAttempt | None = None

    def __init__(self) -> None:
        self.began = self.now = time.monotonic()
        self.succeeded_claims: list[Claim] = []


class InlineAttempts:
    """The inline attempts of one worker; each other claim is passed on when its turn comes."""

    def __init__(self, buffer: ClaimBuffer, capacity: Capacity, sink: AttemptSink) -> None:
        self.handler_of: Callable[[Claim], InlineHandler | None] = lambda _: None  # None: the attempt needs an executor
        self.run_for: Callable[[Claim, Control], Run]
        self.looks_at_jobs = False  # handler_of may judge one run of a job otherwise than the next one
        self.time_slice = TimeSlice()
        self._buffer = buffer
        self._capacity = capacity
        self._sink = sink
        self._claim: Claim | None = None
        self._task: AttemptTask | None = None

    def running(self) -> list[RunningAttempt]:
        """Return the attempt that has begun and not waited yet, if there is one. May be called from any thread."""
        claim, task = self._claim, self._task
        if claim is None or task is None:
            return []
        return [RunningAttempt(claim, claim.key, time.monotonic(), task, self._sink.abandon)]

    def begin(self, task: AttemptTask) -> InProgress | None:
        """Make attempts until one waits, the time slice is over or the caller has to check something.

        Returns the batch with its last attempt, or None where no claim is left.
        """
        self._task, batch = task, InProgress()
        attempts = self._attempt(task, batch)
        try:
            waits_for = attempts.send(None)
        except StopIteration:
            pass
        else:
            batch.waits = batch.is_over = True
            batch.last_attempt, batch.started = continue_awaiting(attempts, waits_for, batch.run), batch.now
        finally:
            done, batch.succeeded_claims = batch.succeeded_claims, []  # a waiting attempt keeps its batch in memory
            if done:
                self._sink.settle(done, DONE)
        self._claim = None
        if batch.ended_count:
            self._capacity.last_end_at = batch.now
            self._sink.keep_pace((batch.now - batch.began) / batch.ended_count, batch.now, batch.ended_count)
        return batch if batch.is_over else None

    async def _attempt(  # noqa: C901, PLR0912  the hot path: no further call for each attempt
        self, task: AttemptTask, batch: InProgress
    ) -> Outcome | None:
        """Make attempts until one has waited, and return the outcome of that one."""
        buffer, capacity, time_slice = self._buffer, self._capacity, self.time_slice
        sink, events, looks_at_jobs = self._sink, self._sink.events, self.looks_at_jobs
        handler: InlineHandler | None = None
        name = kind = names = run_name = decode = (
            None  # of the last claim: task, kind, argument names, and its handler's
        )
        while not batch.is_over and (claim := buffer.next(batch.now)) is not None:
            log.ATTEMPT.set(claim)  # stays set until the next attempt: after a reset the context is slow to compare
            batch.claim, batch.context_before = claim, contextvars.copy_context()
            args = claim.args
            if (claim.task is not name or claim.kind is not kind or type(args) is not dict or args.keys() != names
                    or (looks_at_jobs and claim.job_id is not None)):  # fmt: skip
                handler = self.handler_of(claim)  # nearly always the same handler as before
                name, kind = claim.task, claim.kind
                names = None if handler is None else frozenset(args)
                run_name, decode = (None, None) if handler is None else (handler.run_name, handler.decode)
            if decode is not None and (args := decode(args)) is None:
                handler = name = None  # the arguments do not fit: the ordinary way says why
            record = batch.run = batch.running = None
            if handler is None:
                batch.is_over, batch.last_attempt, batch.started = True, None, batch.now
                break
            self._claim = claim
            if run_name is not None:
                batch.running = RunningAttempt(claim, claim.key, batch.now, task, sink.abandon)
                batch.run = self.run_for(claim, batch.running)
                record, args = batch.run.record, {**args, run_name: batch.run}
            try:
                outcome = outcome_of_value(await handler.function(**args))
            except BaseException as error:
                outcome = outcome_of_raise(error, handler, claim.attempt, record, from_outside=batch.waits)
            if record is not None:
                outcome = end_record(outcome, record)
            if batch.waits:
                return outcome
            started, now = batch.now, time.monotonic()
            if batch.running is not None and batch.running.settled:
                outcome = batch.running.settled_by_handler(outcome)
            # the attempt never waited, so nothing could end it from outside
            if events.wants_times or buffer.stopped:
                sink.report(claim, outcome, started, now)
            elif outcome is DONE:
                batch.succeeded_claims.append(claim)
            else:
                sink.settle([claim], outcome)
            batch.ended_count += 1
            batch.now = now
            if now >= time_slice.ends_at or task.was_cancelled or capacity.calls or is_changed(batch.context_before):
                batch.is_over, batch.last_attempt, batch.started = True, outcome, started
        return None
