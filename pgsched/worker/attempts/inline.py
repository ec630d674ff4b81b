"""Attempts without an executor's call: async functions that need nothing but their arguments and the Run.

One coroutine makes them one after the other. Most handlers never wait, and then an attempt costs a few calls. The first
one that waits is driven to its end as any other attempt is (attempt.py).
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
from pgsched.execute.outcomes import succeeded
from pgsched.execute.python.executor import end_record, going_on, raised
from pgsched.execute.python.handler import InlineHandler
from pgsched.worker.attempts.attempt import Running
from pgsched.worker.attempts.attempt_tasks import AttemptTask, is_changed
from pgsched.worker.attempts.capacity import Capacity
from pgsched.worker.attempts.claim_buffer import ClaimBuffer
from pgsched.worker.attempts.time_slice import TimeSlice
from pgsched.worker.observers.events import WorkerEvents


class AttemptSink(Protocol):
    """What takes the attempts that were made here."""

    settle: Callable[[Sequence[Claim], Outcome], None]
    events: WorkerEvents

    def report(self, claim: Claim, outcome: Outcome | None, started: float, now: float) -> None:
        """This attempt has ended."""
        ...

    def keep_pace(self, seconds: float, now: float, count: int = 1) -> None:
        """So many attempts have ended that took so long each."""
        ...

    def abandon(self, running: Running) -> None:
        """This attempt does not stop."""
        ...


class InProgress:
    """The attempts that one task makes in a time slice, one after the other: how many, and the last of them."""

    made = 0
    is_over = False  # there is a last one
    waits = False  # which waits
    claim: Claim
    begun: Outcome | Coroutine[Any, Any, Any] | None = None  # what it has come to; None: it has not begun
    clean: contextvars.Context  # in which it was begun
    started: float
    run: Run | None = None  # what its handler is given, and through which it steers the attempt
    running: Running | None = None

    def __init__(self) -> None:
        self.began = self.now = time.monotonic()
        self.done: list[Claim] = []  # succeeded and left nothing to keep: settled together


class InlineAttempts:
    """Makes the attempts of one worker that need no executor; the others it hands on, each as it comes."""

    def __init__(self, buffer: ClaimBuffer, capacity: Capacity, sink: AttemptSink) -> None:
        self.handler_of: Callable[[Claim], InlineHandler | None] = lambda _: None  # None: it needs an executor
        self.run_for: Callable[[Claim, Control], Run]
        self.time_slice = TimeSlice()
        self._buffer = buffer
        self._capacity = capacity
        self._sink = sink
        self._claim: Claim | None = None
        self._task: AttemptTask | None = None

    def running(self) -> list[Running]:
        """The attempt that has begun and not waited yet. To be asked from any thread."""
        claim, task = self._claim, self._task
        if claim is None or task is None:
            return []
        return [Running(claim, claim.key, time.monotonic(), task, self._sink.abandon)]

    def begin(self, task: AttemptTask) -> InProgress | None:
        """Begin attempts, one after the other, until one waits, the time slice is over or there is something else to
        look at: the last one. None: there is none left."""
        self._task, batch = task, InProgress()
        attempts = self._attempt(task, batch)
        try:
            waits_for = attempts.send(None)
        except StopIteration:
            pass
        else:
            batch.waits = batch.is_over = True
            batch.begun, batch.started = going_on(attempts, waits_for, batch.run), batch.now
        finally:
            done, batch.done = batch.done, []  # an attempt that waits keeps its batch
            if done:
                self._sink.settle(done, DONE)
        self._claim = None
        if batch.made:
            self._capacity.moved_at = batch.now
            self._sink.keep_pace((batch.now - batch.began) / batch.made, batch.now, batch.made)
        return batch if batch.is_over else None

    async def _attempt(self, task: AttemptTask, batch: InProgress) -> Outcome | None:
        """Make attempts until one has waited: its outcome."""
        buffer, capacity, time_slice = self._buffer, self._capacity, self.time_slice
        sink, events = self._sink, self._sink.events
        handler: InlineHandler | None = None
        name = kind = names = run_name = None  # of its task, how that is read, of its arguments, and of the Run
        while not batch.is_over and (claim := buffer.next(batch.now)) is not None:
            log.ATTEMPT.set(claim)  # until the next one's: set back, the context would be slow to compare
            batch.claim, batch.clean = claim, contextvars.copy_context()
            args = claim.args
            if claim.task is not name or claim.kind is not kind or type(args) is not dict or args.keys() != names:
                handler = self.handler_of(claim)  # nearly always the one of the attempt before
                name, kind = claim.task, claim.kind
                names, run_name = (None, None) if handler is None else (frozenset(args), handler.run_name)
            record = batch.run = batch.running = None
            if handler is None:
                batch.is_over, batch.begun, batch.started = True, None, batch.now
                break
            self._claim = claim
            if run_name is not None:
                batch.running = Running(claim, claim.key, batch.now, task, sink.abandon)
                batch.run = self.run_for(claim, batch.running)
                record, args = batch.run.record, {**args, run_name: batch.run}
            try:
                outcome = succeeded(await handler.function(**args))
            except BaseException as error:
                outcome = raised(error, handler, record, from_outside=batch.waits)
            if record is not None:
                outcome = end_record(outcome, record)
            if batch.waits:
                return outcome
            started, now = batch.now, time.monotonic()
            if batch.running is not None and batch.running.settled:
                outcome = batch.running.settled_by_handler(outcome)
            # it never waited, so that nobody could end it
            if events.wants_times or buffer.stopped:
                sink.report(claim, outcome, started, now)
            elif outcome is DONE:
                batch.done.append(claim)
            else:
                sink.settle([claim], outcome)
            batch.made += 1
            batch.now = now
            if now >= time_slice.ends_at or task.was_cancelled or capacity.calls or is_changed(batch.clean):
                batch.is_over, batch.begun, batch.started = True, outcome, started
        return None
