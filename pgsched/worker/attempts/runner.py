"""The runner of attempts: makes at most `concurrency` attempts at once from the claims that a worker holds.

Each attempt takes a place, and so does each call that serves many attempts.

A task for each attempt would cost more than a short handler. One asyncio task therefore makes attempts one after the
other. Nothing of one attempt may reach the next, so a task ends, and a new one takes its place, when:

- its context variables were changed,
- it was cancelled,
- a call that serves many attempts waits for a place. Then the call gets the place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from pgsched import log
from pgsched.core.model import Claim, Key, Kind, Outcome
from pgsched.execute.base import BatchExecutor, Executor, get_kill_after_s
from pgsched.worker.attempts.attempt import OUTCOMES_UNSTARTED, EndReason, RunningAttempt
from pgsched.worker.attempts.attempt_tasks import AttemptTasks, current_task, is_changed
from pgsched.worker.attempts.calls import BatchCalls
from pgsched.worker.attempts.capacity import Capacity
from pgsched.worker.attempts.claim_buffer import ClaimBuffer
from pgsched.worker.attempts.inline import InlineAttempts
from pgsched.worker.leases import Leases
from pgsched.worker.observers.events import NO_EVENTS, WorkerEvents

logger = log.get("worker")


class AttemptRunner:
    """The claims that a worker holds: those being attempted, and those ahead in the buffer.

    `settle(claims, outcome)` takes every outcome; `on_room()` is called when there may be room for more claims.
    """

    def __init__(
        self,
        executors: Mapping[str, Executor],
        concurrency: int,
        leases: Leases,
        settle: Callable[[Sequence[Claim], Outcome], None],
        on_room: Callable[[], None],
        on_bug: Callable[[BaseException], None],
        left: int = 0,
        events: WorkerEvents = NO_EVENTS,
    ) -> None:
        """Make a runner. `left`: how many runs may be started, 0 for any number (see `buffer.on_last`)."""
        self.executors = executors
        self.drivers = executors  # or wrappers around them: worker/observers/tracing.py
        self.leases = leases
        self.settle = settle
        self.on_room = on_room
        self.events = events
        self.capacity = Capacity(concurrency, leases)
        self.tasks = AttemptTasks(on_bug)
        self._running: dict[Key, RunningAttempt] = {}
        self.buffer = ClaimBuffer(leases, self._running, self._let_go, left)
        self.inline = InlineAttempts(self.buffer, self.capacity, self)
        self._changed = asyncio.Event()
        python = executors.get(Kind.TASK)
        if isinstance(python, BatchExecutor):
            calls = BatchCalls(
                self.capacity, self.tasks, self._running, self._drive, self.report, self._place_freed, on_room
            )
            python.call_in(calls)
            self.buffer.batched_tasks, self.buffer.gather = python.batched_tasks, calls.gather
            self.inline.handler_of, self.inline.run_for = python.inline_handler, python.run_for

    def __len__(self) -> int:
        """Return how many attempts are being made."""
        return len(self._running)

    def is_idle(self) -> bool:
        """Check that no attempt is being made and that no claim waits for a place."""
        return not (self.capacity.busy or self._running or self.buffer.claims)

    def room(self) -> int:
        """Return how many more claims are wanted now."""
        return self.buffer.allowed(self.capacity.wanted(self.buffer.waiting_count()))

    def places(self) -> int:
        """Return how many of these claims may count as begun once they are claimed: one for each free place."""
        return self.buffer.allowed(self.capacity.places(self.buffer.waiting_count()))

    def take(self, claims: list[Claim], sent_at: float) -> None:
        """Hold these claims and start one for each free place; `sent_at`: when the statement was sent (monotonic)."""
        self.events.claimed(claims)
        self.leases.add(claims, sent_at)
        self.capacity.took(claims, time.monotonic(), alone=not self.buffer.claims)
        self.buffer.claims.extend(claims)
        self._fill()

    def beaten(self, denied: list[Key], cancel: frozenset[Key]) -> None:
        """Act on a heartbeat's answer: the claims `denied` are lost, the attempts of `cancel` are to be cancelled."""
        self.end(denied, EndReason.LOST)
        self.end(cancel, EndReason.CANCEL)

    def running(self) -> list[RunningAttempt]:
        """Return the attempts being made. May be called from any thread."""
        return [*list(self._running.values()), *self.inline.running()]

    def attempt_of(self, key: Key) -> RunningAttempt | None:
        """Return the attempt that is being made of this claim, or None."""
        return self._running.get(key)

    def end(self, keys: Collection[Key], why: EndReason) -> None:
        """End the attempts of these claims, and remove those claims that were not started."""
        waiting = set()
        for key in keys:
            running = self._running.get(key)
            if running is None:
                waiting.add(key)
                continue
            if running.end_reason is not why:
                self.events.ending(running.claim, why)
            running.end(why)
        if waiting:
            self.buffer.remove(waiting, why)

    def stop(self) -> None:
        """Start nothing more; a wait in `idle` calls `give_up` again."""
        self.buffer.stopped = True
        self._changed.set()

    def hand_back(self) -> None:
        """Hand back every claim that was not started."""
        self.buffer.hand_back(EndReason.SHUTDOWN)

    def unpark(self) -> None:
        """Hand back claims that are too many or have waited too long for a place. To be called regularly."""
        if (enough := self.capacity.enough(time.monotonic())) is not None:
            self.buffer.hand_back(EndReason.PARKED, max(self.buffer.starting, enough))

    def end_all(self, why: EndReason) -> float:
        """End every attempt; return the longest time in seconds that one of them may take to stop."""
        running = list(self._running.values())
        for one in running:
            one.end(why)
        return max((get_kill_after_s(one.claim) for one in running), default=0.0)

    async def idle(self, give_up: Callable[[], bool]) -> None:
        """Once stopped: wait until no attempt is being made or `give_up()`, called at each end and `stop`, is true."""
        while len(self) and not give_up():
            self._changed.clear()
            await self._changed.wait()

    async def _drive(self, running: RunningAttempt) -> Outcome | None:
        return await running.drive(self.drivers[running.claim.kind])

    def _place_freed(self) -> None:
        self.capacity.give_back()
        self._fill()
        self.on_room()

    def _fill(self) -> None:
        """Start a task for each free place and waiting claim, except the places that calls wait for."""
        for _ in range(min(self.buffer.waiting_count(), self.capacity.free())):
            if self.buffer.stopped:
                return
            self.capacity.busy += 1
            self.buffer.starting += 1
            self.tasks.start(self._serve())

    async def _serve(self) -> None:
        """Make attempts until no claim is left, a call waits for a place, or this task is not clean any more."""
        self.buffer.starting -= 1
        task, capacity, time_slice = current_task(), self.capacity, self.inline.time_slice
        while (batch := self.inline.begin(task)) is not None:
            if not isinstance(batch.last_attempt, Outcome):
                claim, started = batch.claim, batch.started
                running = batch.running or RunningAttempt(claim, claim.key, started, task, self.abandon)
                self._running[claim.key] = running
                outcome = await running.drive(self.drivers[claim.kind], batch.last_attempt)
                if running.abandoned:
                    capacity.abandoned -= 1  # it ended after all; another attempt has its place
                    return
                del self._running[claim.key]
                self._ended(claim, outcome, started, time.monotonic())
            if task.was_cancelled or capacity.calls or is_changed(batch.context_before):
                break
            if time.monotonic() >= time_slice.ends_at:
                time_slice.end()
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:  # a cancellation by a handler that has ended
                    break
        self._place_freed()

    def _ended(self, claim: Claim, outcome: Outcome | None, started: float, now: float) -> None:
        self.capacity.last_end_at = now
        self.report(claim, outcome, started, now)
        self.keep_pace(now - started, now)

    def keep_pace(self, seconds: float, now: float, count: int = 1) -> None:
        """Note that `count` attempts have ended, which took `seconds` each."""
        capacity = self.capacity
        capacity.pace.took(seconds, now, count)
        # with more claims in the buffer there is no room, even with free places
        if len(self.buffer.claims) <= capacity.concurrency + capacity.pace.prefetch // 2:
            self.on_room()

    def report(self, claim: Claim, outcome: Outcome | None, started: float, now: float) -> None:
        """Take an attempt that ran from `started` to `now` (monotonic), in its own place or in a call with others."""
        if self.events.wants_times:
            self.events.attempt_ended(claim, started, now)
        if self.buffer.stopped:
            self._changed.set()
        if outcome is None:
            self.leases.drop([claim])
            logger.warning("claim lost, handler stopped", run=claim.id, attempt=claim.attempt)
        else:
            self.settle([claim], outcome)

    def abandon(self, running: RunningAttempt) -> None:
        """Settle an attempt whose handler does not stop, without waiting longer, and give its place to others."""
        self.capacity.abandoned += 1
        self.capacity.give_back()
        del self._running[running.key]
        self._ended(running.claim, running.outcome(), running.started, time.monotonic())
        self._fill()

    def _let_go(self, claim: Claim, why: EndReason) -> None:
        """Drop a claim that was never started."""
        if why is EndReason.LOST:
            self.leases.drop([claim])
        else:
            self.settle([claim], Outcome(OUTCOMES_UNSTARTED[why], error=why.value))
