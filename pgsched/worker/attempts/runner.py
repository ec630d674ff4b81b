"""At most `concurrency` attempts at once: each takes a place, and so does each call that serves many attempts.

A task for each attempt would cost more than a short handler itself. One asyncio task therefore makes attempts one after
the other. What one attempt leaves behind must not reach the next: a task whose context variables were changed, or that
somebody cancelled, ends, and a new one takes its place. So does one that a call for many attempts waits for, and the
call takes its place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from pgsched import log
from pgsched.core.model import Claim, Key, Kind, Outcome
from pgsched.execute.base import BatchExecutor, Executor, kill_after_s
from pgsched.worker.attempts.attempt import UNSTARTED, Ended, Running
from pgsched.worker.attempts.attempt_tasks import AttemptTasks, current, is_changed
from pgsched.worker.attempts.calls import BatchCalls
from pgsched.worker.attempts.capacity import Capacity
from pgsched.worker.attempts.claim_buffer import ClaimBuffer
from pgsched.worker.attempts.inline import InlineAttempts
from pgsched.worker.leases import Leases
from pgsched.worker.observers.events import NO_EVENTS, WorkerEvents

logger = log.get("worker")


class AttemptRunner:
    """The claims that this worker holds: those being attempted, and those ahead in the buffer.

    `settle(claims, outcome)` takes every outcome; `on_room()` is told when an attempt has ended and there may be room.
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
        """`left`: how many runs may be started, 0 for any number (`buffer.on_last` is called when the last one is)."""
        self.executors = executors
        self.drivers = executors  # or what goes around them: worker/observers/tracing.py
        self.leases = leases
        self.settle = settle
        self.on_room = on_room
        self.events = events
        self.capacity = Capacity(concurrency, leases)
        self.tasks = AttemptTasks(on_bug)
        self._running: dict[Key, Running] = {}
        self.buffer = ClaimBuffer(leases, self._running, self._let_go, left)
        self.inline = InlineAttempts(self.buffer, self.capacity, self)
        self._changed = asyncio.Event()
        python = executors.get(Kind.TASK)
        if isinstance(python, BatchExecutor):
            calls = BatchCalls(
                self.capacity, self.tasks, self._running, self._drive, self.report, self._place_freed, on_room
            )
            python.call_in(calls)
            self.buffer.gathered, self.buffer.gather = python.gathered, calls.gather
            self.inline.handler_of, self.inline.run_for = python.inline_handler, python.run_for

    def __len__(self) -> int:
        """How many attempts are being made."""
        return len(self._running)

    def is_idle(self) -> bool:
        """Is nothing being attempted, and nothing waiting for a place?"""
        return not (self.capacity.busy or self._running or self.buffer.claims)

    def room(self) -> int:
        """How many more claims are wanted now."""
        return self.buffer.allowed(self.capacity.wanted(self.buffer.held()))

    def places(self) -> int:
        """For how many of them there is a free place now: those may be such as count as begun once they are claimed."""
        return self.buffer.allowed(self.capacity.places(self.buffer.held()))

    def take(self, claims: list[Claim], sent_at: float) -> None:
        """Hold these claims, and start as many as there are free places. `sent_at`: when the claim was sent."""
        self.events.claimed(claims)
        self.leases.add(claims, sent_at)
        self.capacity.took(claims, time.monotonic(), alone=not self.buffer.claims)
        self.buffer.claims.extend(claims)
        self._fill()

    def beaten(self, denied: list[Key], cancel: frozenset[Key]) -> None:
        """A heartbeat's answer: these claims are lost, and of those the attempt is to be cancelled."""
        self.end(denied, Ended.LOST)
        self.end(cancel, Ended.CANCEL)

    def running(self) -> list[Running]:
        """The attempts being made. To be asked from any thread."""
        return [*list(self._running.values()), *self.inline.running()]

    def attempt_of(self, key: Key) -> Running | None:
        """The attempt that is being made of this claim."""
        return self._running.get(key)

    def end(self, keys: Collection[Key], why: Ended) -> None:
        """End these attempts, and let go of those of the claims that were not started."""
        waiting = set()
        for key in keys:
            running = self._running.get(key)
            if running is None:
                waiting.add(key)
                continue
            if running.ended is not why:
                self.events.ending(running.claim, why)
            running.end(why)
        if waiting:
            self.buffer.remove(waiting, why)

    def stop(self) -> None:
        """Start nothing more. `idle` asks again whether to give up."""
        self.buffer.stopped = True
        self._changed.set()

    def hand_back(self) -> None:
        """Let go of every claim that was not started."""
        self.buffer.hand_back(Ended.SHUTDOWN)

    def unpark(self) -> None:
        """Hand back what was claimed ahead and is too much, or parked: to be called now and then."""
        if (enough := self.capacity.enough(time.monotonic())) is not None:
            self.buffer.hand_back(Ended.PARKED, max(self.buffer.starting, enough))

    def end_all(self, why: Ended) -> float:
        """End every attempt; returns the longest time in seconds that one of them may take to stop."""
        running = list(self._running.values())
        for one in running:
            one.end(why)
        return max((kill_after_s(one.claim) for one in running), default=0.0)

    async def idle(self, give_up: Callable[[], bool]) -> None:
        """Once stopped: wait until no attempt is being made, or `give_up()`, asked at each end and `stop`, is true."""
        while len(self) and not give_up():
            self._changed.clear()
            await self._changed.wait()

    async def _drive(self, running: Running) -> Outcome | None:
        return await running.drive(self.drivers[running.claim.kind])

    def _place_freed(self) -> None:
        self.capacity.give_back()
        self._fill()
        self.on_room()

    def _fill(self) -> None:
        """Take places while there are claims for them, beside those that calls wait for."""
        for _ in range(min(self.buffer.held(), self.capacity.free())):
            if self.buffer.stopped:
                return
            self.capacity.busy += 1
            self.buffer.starting += 1
            self.tasks.start(self._serve())

    async def _serve(self) -> None:
        """Make attempts until none is left, a call waits for a place, or this task is not as clean as it was."""
        self.buffer.starting -= 1
        task, capacity, time_slice = current(), self.capacity, self.inline.time_slice
        while (batch := self.inline.begin(task)) is not None:
            if not isinstance(batch.begun, Outcome):
                claim, started = batch.claim, batch.started
                running = batch.running or Running(claim, claim.key, started, task, self.abandon)
                self._running[claim.key] = running
                outcome = await running.drive(self.drivers[claim.kind], batch.begun)
                if running.abandoned:
                    capacity.abandoned -= 1  # it came back after all; its place has been given away
                    return
                del self._running[claim.key]
                self._ended(claim, outcome, started, time.monotonic())
            if task.was_cancelled or capacity.calls or is_changed(batch.clean):
                break
            if time.monotonic() >= time_slice.ends_at:
                time_slice.end()
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:  # by a handler that has ended
                    break
        self._place_freed()

    def _ended(self, claim: Claim, outcome: Outcome | None, started: float, now: float) -> None:
        self.capacity.moved_at = now
        self.report(claim, outcome, started, now)
        self.keep_pace(now - started, now)

    def keep_pace(self, seconds: float, now: float, count: int = 1) -> None:
        """So many attempts have ended that took so long each."""
        capacity = self.capacity
        capacity.pace.took(seconds, now, count)
        # or there is no room, whatever is free
        if len(self.buffer.claims) <= capacity.concurrency + capacity.pace.prefetch // 2:
            self.on_room()

    def report(self, claim: Claim, outcome: Outcome | None, started: float, now: float) -> None:
        """An attempt that began at monotonic `started` has ended `now`, in a place of its own or served with others."""
        if self.events.wants_times:
            self.events.attempt_ended(claim, started, now)
        if self.buffer.stopped:
            self._changed.set()
        if outcome is None:
            self.leases.drop([claim])
            logger.warning("claim lost, handler stopped", run=claim.id, attempt=claim.attempt)
        else:
            self.settle([claim], outcome)

    def abandon(self, running: Running) -> None:
        """A handler does not stop: settle it without waiting any longer, and give its place to others."""
        self.capacity.abandoned += 1
        self.capacity.give_back()
        del self._running[running.key]
        self._ended(running.claim, running.outcome(), running.started, time.monotonic())
        self._fill()

    def _let_go(self, claim: Claim, why: Ended) -> None:
        """Let go of a claim that was never started."""
        if why is Ended.LOST:
            self.leases.drop([claim])
        else:
            self.settle([claim], Outcome(UNSTARTED[why], error=why.value))
