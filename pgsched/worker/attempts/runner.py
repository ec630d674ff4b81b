"""At most `concurrency` attempts at once: each takes a place, and so does each call that serves many attempts.

A task for each attempt would cost more than a short handler itself. One asyncio task therefore makes attempts one after
the other. What one attempt leaves behind must not reach the next: a task whose context variables were changed, or that
its handler cancelled, ends, and a new one takes its place. So does one that a call for many attempts waits for, and the
call takes its place.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence, Sized
from typing import Any

from pgsched import log
from pgsched.app.control import Control
from pgsched.app.run import Run
from pgsched.core.model import DONE, Claim, Key, Kind, Outcome, keys_of
from pgsched.execute.base import Executor, kill_after_s
from pgsched.execute.outcomes import succeeded
from pgsched.execute.python.executor import Handler, PythonExecutor, end_record, going_on, raised
from pgsched.worker.attempts.attempt import UNSTARTED, Ended, Gathered, Running
from pgsched.worker.attempts.room import Room
from pgsched.worker.attempts.time_slice import Last, Turn, Turns, is_changed
from pgsched.worker.leases import Leases

logger = log.get("worker")
PARKED_S = 0.2  # no claim waits longer for a place of this worker: another one may be free


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
        on_last: Callable[[], object] = bool,
    ) -> None:
        """`left`: how many runs may be started, 0 for any number; `on_last` is told when the last one is."""
        self.executors = executors
        self.drivers = executors  # or what goes around them: worker/tracing.py
        self.inline_handler: Callable[[Claim], Handler | None] = lambda _: None  # called without an executor
        self.run_for: Callable[[Claim, Control], Run]  # the Run of such an attempt
        self.concurrency = concurrency
        self.leases = leases
        self._room = Room(concurrency, leases)
        self.pace = self._room.pace
        self.abandoned = 0
        self._settle = settle
        self._on_room = on_room
        self._on_bug = on_bug
        self._left = left
        self._on_last = on_last
        self._buffer: deque[Claim] = deque()
        self._running: dict[Key, Running] = {}
        self._beginning: Claim | None = None
        self._beginner: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._starting = 0  # how many of them have not taken their claim out of the buffer yet
        self._stopped = self._noting = False
        self._turns = Turns()
        self._taken_at = self._moved_at = 0.0  # when claims last came, and when a place last became free
        self._changed = asyncio.Event()
        self._context = contextvars.copy_context()
        self._freed = asyncio.Event()
        self._waiting: set[Sized] = set()  # the attempts of each call that waits for a place
        python = executors.get(Kind.TASK)
        self._gathered: frozenset[str] = frozenset()  # tasks whose attempts take no place: their calls do
        if isinstance(python, PythonExecutor):
            self.inline_handler, self.run_for = python.inline_handler, python.run_for
            self._gathered, python.batches.places = python.batches.gathered, self

    def __len__(self) -> int:
        """How many attempts are being made."""
        return len(self._running)

    def is_idle(self) -> bool:
        """Is nothing being attempted, and nothing waiting for a place?"""
        return not (self._busy or self._running or self._buffer)

    def room(self) -> int:
        """How many more claims are wanted now."""
        return self._at_most(self._room.wanted)

    def places(self) -> int:
        """For how many of them there is a free place now: those may be such as count as begun once they are claimed."""
        return self._at_most(self._room.places)

    def _at_most(self, wanted: Callable[[int, int, bool], int]) -> int:
        if self._stopped:
            return 0
        free = self.concurrency - self._busy - sum(map(len, self._waiting))
        parked = self._busy > 0 and time.monotonic() >= self._moved_at + PARKED_S
        count = wanted(free, max(0, len(self._buffer) - self._starting), parked)
        return min(count, self._left - len(self._buffer)) if self._left > 0 else count

    def take(self, claims: list[Claim], sent_at: float) -> None:
        """Hold these claims, and start as many as there are free places. `sent_at`: when the claim was sent."""
        self.leases.add(claims, sent_at)
        self._taken_at = time.monotonic()
        self._room.took(claims, self._taken_at, alone=not self._buffer)
        if not (self._buffer or self._busy):
            self.pace.waited(self._moved_at, self._taken_at)
        self._buffer.extend(claims)
        self._fill()

    def beaten(self, denied: list[Key], cancel: frozenset[Key]) -> None:
        """A heartbeat's answer: these claims are lost, and of those the attempt is to be cancelled."""
        self.end(denied, Ended.LOST)
        self.end(cancel, Ended.CANCEL)

    def running(self) -> list[Running]:
        """The attempts being made. To be asked from any thread."""
        running, claim, task = list(self._running.values()), self._beginning, self._beginner
        if claim is not None and task is not None:
            running.append(Running(claim, claim.key, time.monotonic(), task, self._abandon))
        return running

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
            else:
                running.end(why)
        if not waiting:
            return
        buffer, self._buffer = self._buffer, deque()
        for claim in buffer:  # once for all of them: thousands may wait
            if claim.key in waiting:
                self._hand_back(claim, why)
            else:
                self._buffer.append(claim)

    def stop(self) -> None:
        """Start nothing more. `idle` asks again whether to give up."""
        self._stopped = True
        self._changed.set()

    def hand_back(self, why: Ended = Ended.SHUTDOWN, but: int = 0) -> None:
        """Let go of every claim that was not started, but for so many that are next."""
        while len(self._buffer) > but:
            self._hand_back(self._buffer.pop(), why)

    def unpark(self) -> None:
        """Hand back what was claimed ahead and is too much, or parked: to be called now and then."""
        now, ahead = time.monotonic(), self._room.enough()
        if now > self._taken_at + PARKED_S:
            self.hand_back(Ended.PARKED, max(self._starting, ahead if now <= self._moved_at + PARKED_S else 0))

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

    # ---- calls for many attempts (execute/python/batches.py)

    async def take_place(self, attempts: Sized) -> None:
        """Wait for a place, and take it for a call that serves these attempts."""
        self._waiting.add(attempts)
        try:
            while self._busy >= self.concurrency:
                self._freed.clear()
                await self._freed.wait()
        finally:
            self._waiting.discard(attempts)
        self._busy += 1
        self._on_room()

    def begin(self, claims: Sequence[Claim]) -> None:
        """The call begins, for these."""
        for running in filter(None, map(self.attempt_of, keys_of(claims))):
            running.begun = True

    def give_place(self) -> None:
        """The call has ended."""
        self._moved_at = time.monotonic()
        self._place_freed()

    async def _gather(self, claim: Claim) -> None:
        """One attempt of a batch."""
        task = asyncio.current_task()
        assert task is not None
        key = claim.key
        log.ATTEMPT.set(claim)
        running = self._running[key] = Gathered(claim, key, time.monotonic(), task, self._abandon_gathered)
        outcome = await running.drive(self.drivers[claim.kind])
        self._ended_gathered(running, outcome)

    def _ended_gathered(self, running: Running, outcome: Outcome | None) -> None:
        if self._running.pop(running.key, None) is not None:
            self._told(running.claim, outcome, running.started, time.monotonic())

    def _abandon_gathered(self, running: Running) -> None:
        """Its call does not stop: settle it without waiting any longer."""
        self._ended_gathered(running, running.outcome())

    # ---- one task

    def _place_freed(self) -> None:
        self._busy -= 1
        self._freed.set()
        self._fill()
        self._on_room()

    def _fill(self) -> None:
        """Take places while there are claims for them, beside those that calls wait for."""
        free = self.concurrency - self._busy - len(self._waiting)
        for _ in range(min(len(self._buffer) - self._starting, free)):
            if self._stopped:
                return
            self._busy += 1
            self._starting += 1
            self._start(self._serve())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._task_ended, context=self._context)

    async def _serve(self) -> None:
        """Make attempts until none is left, a call waits for a place, or this task is not as clean as it was."""
        self._starting -= 1
        task = asyncio.current_task()
        assert task is not None
        while (last := self._begin(task)) is not None:
            claim, begun, clean, started, running = last
            by_us = False
            if not isinstance(begun, Outcome):
                running = running or Running(claim, claim.key, started, task, self._abandon)
                self._running[claim.key] = running
                outcome = await running.drive(self.drivers[claim.kind], begun)
                if running.abandoned:
                    self.abandoned -= 1  # it came back after all; its place has been given away
                    return
                del self._running[claim.key]
                self._ended(claim, outcome, started, time.monotonic())
                by_us = running.ended is not None
            while by_us and task.uncancel():
                pass
            # told when it waits next: before 3.13 also where the cancellation was taken back
            must_cancel = task._must_cancel  # type: ignore[attr-defined]
            if must_cancel or task.cancelling() or self._waiting or is_changed(clean):
                break
            if time.monotonic() >= self._turns.ends_at:
                self._turns.end()
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:  # by a handler that has ended
                    break
        self._place_freed()

    def _begin(self, task: asyncio.Task[None]) -> Last | None:
        """Begin attempts, one after the other, until one waits, the turn is over or there is something else to look at:
        the last one. None: there is none left."""
        self._beginner, turn = task, Turn()
        attempts = self._attempt(task, turn)
        try:
            waits_for = attempts.send(None)
        except StopIteration:
            last = turn.last
        else:
            turn.waits = True
            last = turn.claim, going_on(attempts, waits_for, turn.run), turn.clean, turn.now, turn.running
        finally:
            done, turn.done = turn.done, []  # an attempt that waits keeps its turn
            if done:
                self._settle(done, DONE)
        self._beginning = None
        if turn.made:
            self._moved_at = turn.now
            self._noted((turn.now - turn.began) / turn.made, turn.now, turn.made)
        return last

    async def _attempt(self, task: asyncio.Task[None], turn: Turn) -> Outcome | None:
        """Make attempts that need nothing but their arguments and the Run, until one has waited: its outcome."""
        handler: Handler | None = None
        name = kind = names = None  # of its task, how that is read, and of its arguments
        while turn.last is None and (claim := self._next(turn.now)) is not None:
            log.ATTEMPT.set(claim)  # until the next one's: set back, the context would be slow to compare
            clean = contextvars.copy_context()
            args = claim.args
            if claim.task is not name or claim.kind is not kind or type(args) is not dict or args.keys() != names:
                handler = self.inline_handler(claim)  # nearly always the one of the attempt before
                name, kind, names = claim.task, claim.kind, None if handler is None else frozenset(args)
            if handler is None:
                turn.last = claim, None, clean, turn.now, None
                break
            self._beginning = turn.claim = claim
            turn.clean = clean
            record = turn.run = turn.running = None
            if handler.run_name is not None:
                turn.running = Running(claim, claim.key, turn.now, task, self._abandon)
                turn.run = self.run_for(claim, turn.running)
                record, args = turn.run.record, {**args, handler.run_name: turn.run}
            try:
                outcome = succeeded(await handler.function(**args))
            except BaseException as error:
                outcome = raised(error, handler, record, from_outside=turn.waits)
            if record is not None:
                outcome = end_record(outcome, record)
            if turn.waits:
                return outcome
            started, now = turn.now, time.monotonic()
            if turn.running is not None and turn.running.settled:
                outcome = turn.running.settled_by_handler(outcome)
            # it never waited, so that nobody could end it
            if self._noting or self._stopped:
                self._told(claim, outcome, started, now)
            elif outcome is DONE:
                turn.done.append(claim)
            else:
                self._settle([claim], outcome)
            turn.made += 1
            turn.now = now
            must_cancel = task._must_cancel  # type: ignore[attr-defined]
            if now >= self._turns.ends_at or must_cancel or self._waiting or is_changed(clean):
                turn.last = claim, outcome, clean, started, None
        return None

    def _next(self, now: float) -> Claim | None:
        """The next claim to attempt; those whose deadline has passed are handed back. (What waits is held: what is let
        go of, or lost, waits no more.)"""
        while self._buffer and not self._stopped:
            claim = self._buffer.popleft()
            if self._running and claim.key in self._running:
                continue
            if now >= self.leases.soonest and self.leases.past(claim, now):
                self._hand_back(claim, Ended.DEADLINE)
                continue
            if self._left > 0:
                self._left -= 1
                if self._left == 0:
                    log.ATTEMPT.set(None)  # what is said of it is of no attempt
                    self._on_last()  # which stops this runner: from here on 0 would mean any number
            if self._gathered and claim.task in self._gathered and claim.kind == Kind.TASK:
                self._start(self._gather(claim))
                continue
            return claim
        return None

    def _ended(self, claim: Claim, outcome: Outcome | None, started: float, now: float) -> None:
        self._moved_at = now
        self._told(claim, outcome, started, now)
        self._noted(now - started, now)

    def _noted(self, seconds: float, now: float, count: int = 1) -> None:
        """So many attempts have ended that took so long each."""
        self.pace.took(seconds, now, count)
        if len(self._buffer) <= self.concurrency + self.pace.prefetch // 2:  # or there is no room, whatever is free
            self._on_room()

    def _told(self, claim: Claim, outcome: Outcome | None, started: float, now: float) -> None:
        """An attempt that began at monotonic `started` has ended `now`, in a place of its own or served with others."""
        if self._noting:
            self._note(claim, started, now)
        if self._stopped:
            self._changed.set()
        if outcome is None:
            self.leases.drop([claim])
            logger.warning("claim lost, handler stopped", run=claim.id, attempt=claim.attempt)
        else:
            self._settle([claim], outcome)

    def _note(self, claim: Claim, started: float, now: float) -> None:
        """For who wants to know how long attempts take (worker/metrics.py)."""

    def _abandon(self, running: Running) -> None:
        """A handler does not stop: settle it without waiting any longer, and give its place to others."""
        self.abandoned += 1
        self._busy -= 1
        self._freed.set()
        del self._running[running.key]
        self._ended(running.claim, running.outcome(), running.started, time.monotonic())
        self._fill()

    def _hand_back(self, claim: Claim, why: Ended) -> None:
        """Let go of a claim that was never started."""
        if why is Ended.LOST:
            self.leases.drop([claim])
        else:
            self._settle([claim], Outcome(UNSTARTED[why], error=why.value))

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_bug(error)
