"""Plain functions that take next to no time: a thread makes a hand of attempts, one after the other.

To give each of them to a thread by itself takes ten times as long as such a function. The rule: nothing waits behind a
call that turns out to take long. What its hand has not begun after LATE_S is taken out of it again, for whatever slot
is free, and its slot waits for it as for any other attempt. A claim is the thread's once it has been popped.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from pgsched import log
from pgsched.app.run import Run
from pgsched.core.model import Claim, Key, Outcome, keys_of
from pgsched.execute.python.executor import Handler, PythonExecutor, called, end_record, grace_of, stopped
from pgsched.worker.attempts.attempt import Ended, Running

HAND_S = 0.001  # after which a hand begins nothing more
ALL_S = 0.004  # the same of all of them together: the event loop waits for the interpreter behind each
MOST = 256  # attempts
LATE_S = 0.02  # after which nothing waits for a call any longer
Made = tuple[Running, Outcome, float]  # an attempt, what it has come to, and when, by the monotonic clock


class Hand:
    """These claims of one task, for one thread, and the slot that is the current task. The thread begins with `_play`;
    `look` may be asked from any, and all else is for the loop's."""

    def __init__(
        self,
        python: PythonExecutor,
        handler: Handler,
        claims: Sequence[Claim],
        on_abandon: Callable[[Running], None],
        is_past: Callable[[Claim, float], bool],
        seconds: float,
    ) -> None:
        """The attempts are made in copies of the current context, and none is begun after so many seconds, or at a
        claim whose deadline `is_past`. Raises RuntimeError where no thread is to be had."""
        task = asyncio.current_task()
        assert task is not None
        self.claims = claims
        self.why: Ended | None = None  # an attempt is to end
        self.whom: Running | None = None  # that is it
        self._python = python
        self._handler = handler
        self._task = task
        self._on_abandon = on_abandon
        self._is_past = is_past
        self.seconds = seconds
        self._context = contextvars.copy_context()
        self._waiting = deque(claims)
        self._kept = len(claims)  # that were not taken out
        self._made: list[Made] = []
        self._running: Running | None = None
        self._run: Run | None = None
        self._over = asyncio.Event()
        self._work = python.start(self._play)
        self._work.add_done_callback(lambda _: self._over.set())

    def _play(self) -> None:
        """Make attempts, one at least, until none is left or the time is over."""
        until = None
        while self._waiting:
            began = time.monotonic()
            until = until or began + self.seconds
            try:
                if self._is_past(self._waiting[0], began):  # this process was frozen
                    return
                running = self._next(self._waiting[0], began)
                claim = self._waiting.popleft()
            except IndexError:  # taken out just now
                return
            outcome = self._context.copy().run(self._attempt, claim)
            now = time.monotonic()
            self._made.append((running, outcome, now))
            if now >= until:
                return

    def _next(self, claim: Claim, now: float) -> Running:
        self._running = running = Running(claim, claim.key, now, self._task, self._on_abandon)
        if self._handler.run_name is not None:
            self._run = self._python.run_for(claim, running)
        return running

    def _attempt(self, claim: Claim) -> Outcome:
        log.ATTEMPT.set(claim)
        run, handler = self._run, self._handler
        if run is None or handler.run_name is None:
            return called(partial(handler.function, **claim.args), handler.no_retry)
        outcome = called(partial(handler.function, **claim.args, **{handler.run_name: run}), handler.no_retry)
        return outcome if run.record is None else end_record(outcome, run.record)

    @property
    def is_begun(self) -> bool:
        """Has the thread begun with it?"""
        return len(self._waiting) < self._kept

    @property
    def has_failed(self) -> bool:
        """Has the thread made nothing but an error?"""
        return not self._made and self._work.done() and self._work.exception() is not None

    async def wait(self, late: Callable[[Hand], None]) -> None:
        """Wait until its thread has come to its end, or nobody wants to wait here any longer. `late` is called when
        that takes long."""
        limits = [claim.timeout.total_seconds() for claim in self.claims if claim.timeout is not None]
        self.call_later(min([LATE_S, *limits]), late)
        try:
            await self._over.wait()
        except asyncio.CancelledError:  # of the slot's task, by an attempt that has ended: the others must be told of
            pass
        finally:
            self._timer.cancel()

    def call_later(self, seconds: float, late: Callable[[Hand], None]) -> None:
        """Have this called with it after so long, unless it is over by then."""
        self._timer = asyncio.get_running_loop().call_later(seconds, late, self)

    def take_rest(self, but: int = 0) -> list[Claim]:
        """Take out what was not begun, but for the first `but` of it."""
        rest: list[Claim] = []
        while len(self._waiting) > but:
            try:
                rest.append(self._waiting.pop())
            except IndexError:  # begun just now
                break
        rest.reverse()
        self._kept -= len(rest)
        return rest

    def take_late(self) -> list[Claim]:
        """Take out what was not begun, but leave it one to begin with: a thread may have to wait for its time, and one
        that found nothing when it has come, again and again, would do nothing at all."""
        rest = self.take_rest(but=1)
        return [*self.take_rest(), *rest] if self.is_begun else rest

    def look(self) -> tuple[list[Made], Running | None]:
        """The attempts that have ended; and the one that is being made. (While something waits, that may be one that
        is about to begin.)"""
        running, made = self._running, list(self._made)
        is_over = len(made) >= self._kept or (made and made[-1][0] is running)
        return made, None if is_over else running

    async def last(self, claim: Claim) -> Outcome:
        """What the attempt at this claim comes to, which is being made. Raises what an executor may."""
        run = self._run
        try:
            await self._python.watch(self._work, run, grace_of(claim, self._handler))
        except asyncio.CancelledError as error:
            raise error if run is None or run.record is None else stopped(error, run.record) from None
        return self._made[-1][1]

    def leave(self) -> None:
        """Wait here no longer."""
        self._over.set()

    def end(self, running: Running, why: Ended) -> None:
        """Wait here no longer, and end this attempt. The first reason counts, but a loss overrides."""
        if self.why is None or why is Ended.LOST:
            self.why, self.whom = why, running
        self._over.set()

    def is_lost(self, running: Running) -> bool:
        """Has this attempt lost its claim, while it came to its end?"""
        return running is self.whom and self.why is Ended.LOST and running.settled is False


class Hands:
    """Those of one worker. `give_back` is told of claims that were taken out of one, and `is_past` asked whether a
    claim's deadline has passed at an instant."""

    def __init__(
        self,
        give_back: Callable[[list[Claim]], None],
        on_abandon: Callable[[Running], None],
        is_past: Callable[[Claim, float], bool],
    ) -> None:
        self.python: PythonExecutor
        self._give_back = give_back
        self._on_abandon = on_abandon
        self._is_past = is_past
        self._hands: set[Hand] = set()
        self.of: dict[Key, Hand] = {}  # by the keys of their claims
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._hands)

    @property
    def ahead(self) -> int:
        """How many claims wait in them for others, at most."""
        return len(self.of) - len(self._hands)

    def size(self, task: str) -> int:
        """For how many attempts the task's next hand is: as many as last for HAND_S, once that is known."""
        return self._sizes.get(task, 1)

    def begin(self, handler: Handler, claims: Sequence[Claim]) -> Hand:
        """Have a thread make these attempts. Raises RuntimeError where none is to be had."""
        seconds = min(HAND_S, ALL_S / (1 + len(self._hands)))
        hand = Hand(self.python, handler, claims, self._on_abandon, self._is_past, seconds)
        self._hands.add(hand)
        self.of.update(dict.fromkeys(keys_of(claims), hand))
        return hand

    async def ended(self, hand: Hand) -> tuple[list[Made], Running | None] | None:
        """Wait for the attempts that do not take long: those, and the one that goes on. None: the thread could not even
        begin with the first one, which is the caller's again."""
        await hand.wait(self._late)
        rest = hand.take_rest()
        is_ours = hand.has_failed and bool(rest) and rest[0] is hand.claims[0]
        self._take_out(rest[is_ours:])
        self._hands.discard(hand)
        for key in keys_of(hand.claims):
            if self.of.get(key) is hand:  # what was taken out may be in another one
                del self.of[key]
        if is_ours:
            return None
        made, running = hand.look()
        self._learn(hand, made, running)
        return made, running

    def _learn(self, hand: Hand, made: Sequence[Made], running: Running | None) -> None:
        task = hand.claims[0].task
        if running is not None or not made:
            self._sizes[task] = 1
        elif made[-1][2] - made[0][0].started >= hand.seconds:
            self._sizes[task] = min(len(made), self.size(task))
        elif len(made) >= self.size(task):
            self._sizes[task] = min(MOST, 2 * len(made))

    def running(self) -> list[Running]:
        """The attempts that are being made. To be asked from any thread."""
        return [running for hand in list(self._hands) if (running := hand.look()[1]) is not None]

    def attempt_of(self, key: Key) -> Running | None:
        """The one that is being made of this claim."""
        hand = self.of.get(key)
        running = None if hand is None else hand.look()[1]
        return running if running is not None and running.key == key else None

    def end(self, keys: set[Key], why: Ended) -> None:
        """End what is being made of these claims, and take out what was not begun beside it."""
        for hand in {self.of[key] for key in keys if key in self.of}:
            self._take_out(hand.take_rest())
            if (running := hand.look()[1]) is not None and running.key in keys:
                hand.end(running, why)

    def take_out(self) -> None:
        """Take out all that was not begun."""
        for hand in list(self._hands):
            self._take_out(hand.take_rest())

    def _take_out(self, rest: list[Claim]) -> None:
        for key in keys_of(rest):
            self.of.pop(key, None)
        if rest:
            self._give_back(rest)

    def _late(self, hand: Hand) -> None:
        running, left_s = hand.look()[1], LATE_S
        if not hand.is_begun:
            self._take_out(hand.take_late())
        elif running is not None:
            left_s += running.started - time.monotonic()  # others may have taken the time, each a little
            if running.deadline is not None:
                left_s = min(left_s, running.deadline - time.monotonic())
        if left_s > 0:
            hand.call_later(left_s, self._late)
            return
        self._sizes[hand.claims[0].task] = 1  # before what is taken out is dealt again
        self._take_out(hand.take_rest())
        hand.leave()
