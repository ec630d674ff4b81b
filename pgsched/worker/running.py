"""One attempt in flight: the executor's task, its deadline, and the reason if somebody ended it.

Whoever ends an attempt names the reason; the reason decides the outcome. An executor that does not come back within
`kill_after` plus a margin is abandoned, so that a handler that swallows cancellation cannot hold a slot for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from pgsched.execute.base import kill_after_s
from pgsched.model import Claim, Outcome, Result

ABANDON_MARGIN_S = 5.0


class Ended(Enum):
    """Why an attempt was ended from outside."""

    TIMEOUT = "timed out"
    CANCEL = "cancelled on request"
    SHUTDOWN = "handed back: the worker was stopped"
    DEADLINE = "handed back: the lease could not be renewed in time"
    LOST = "claim lost: another attempt owns the run or it has ended"


OUTCOMES = {
    Ended.TIMEOUT: Result.TIMED_OUT,
    Ended.CANCEL: Result.CANCELLED,
    Ended.SHUTDOWN: Result.INTERRUPTED,
    Ended.DEADLINE: Result.INTERRUPTED,
}


class Running:
    """Drives one executor call; `done(running, outcome)` is called once, with None when nothing may be settled."""

    def __init__(self, claim: Claim, done: Callable[[Running, Outcome | None], None]) -> None:
        self.claim = claim
        self.ended: Ended | None = None
        self.abandoned = False
        self.started = time.monotonic()
        self._done = done
        self._task: asyncio.Task[Outcome] | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def start(self, execute: Coroutine[Any, Any, Outcome]) -> None:
        """Begin the attempt on the running loop."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(execute, name=f"run {self.claim.id}")
        self._task.add_done_callback(self._finished)
        if self.claim.timeout is not None:
            self._timers.append(loop.call_later(self.claim.timeout.total_seconds(), self.end, Ended.TIMEOUT))

    def end(self, why: Ended) -> None:
        """Stop the attempt: soft now, abandoned when it does not end. The first reason counts, but a loss overrides."""
        if self._task is None or self._task.done():
            return
        first = self.ended is None
        if first or why is Ended.LOST:
            self.ended = why
        if first:
            self._task.cancel()
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(kill_after_s(self.claim) + ABANDON_MARGIN_S, self._abandon))

    def outcome(self, log_tail: str | None = None) -> Outcome | None:
        """The outcome of an attempt that was ended from outside; None when it may not be settled."""
        if self.ended is None or self.ended not in OUTCOMES:
            return None
        detail = self.ended.value
        if self.ended is Ended.TIMEOUT and self.claim.timeout is not None:
            detail = f"timed out after {self.claim.timeout.total_seconds():g} s"
        return Outcome(OUTCOMES[self.ended], error=detail, log_tail=log_tail)

    def _finished(self, task: asyncio.Task[Outcome]) -> None:
        for timer in self._timers:
            timer.cancel()
        if self.abandoned:
            if not task.cancelled():
                task.exception()
            return
        self._done(self, self._result(task))

    def _result(self, task: asyncio.Task[Outcome]) -> Outcome | None:
        try:
            result = task.result()
        except asyncio.CancelledError as stopped:
            if self.ended is None:
                return Outcome(Result.FAILED, error="CancelledError: the task cancelled itself")
            return self.outcome(getattr(stopped, "log_tail", None))
        except Exception as error:  # an executor must not raise; if it does, the run must not vanish
            return Outcome(Result.CRASHED, error=f"executor failed: {type(error).__name__}: {error}")
        # finished in spite of being ended: what was done is done, and the fence judges whether it counts
        return None if self.ended is Ended.LOST else result

    def _abandon(self) -> None:
        self.abandoned = True
        self._done(self, self.outcome())
