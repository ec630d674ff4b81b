"""One attempt in flight: the executor's call, its deadline, and the reason if somebody ended it.

Whoever ends an attempt names the reason; the reason decides the outcome. An executor that does not come back within
`kill_after` plus a margin is abandoned, so that a handler that swallows cancellation cannot hold a slot for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

from pgsched.execute.base import Executor, kill_after_s
from pgsched.model import Claim, Outcome, Result

ABANDON_MARGIN_S = 5.0


class Ended(Enum):
    """Why an attempt was ended from outside."""

    TIMEOUT = "timed out"
    CANCEL = "cancelled on request"
    SHUTDOWN = "handed back: the worker was stopped"
    PARKED = "handed back: all slots of the worker were busy"
    DEADLINE = "handed back: the lease could not be renewed in time"
    LOST = "claim lost: another attempt owns the run or it has ended"


OUTCOMES = {
    Ended.TIMEOUT: Result.TIMED_OUT,
    Ended.CANCEL: Result.CANCELLED,
    Ended.SHUTDOWN: Result.INTERRUPTED,
    Ended.PARKED: Result.INTERRUPTED,
    Ended.DEADLINE: Result.INTERRUPTED,
}
# A claim that was not started has had no attempt that could be interrupted.
UNSTARTED = {why: Result.RELEASED if result is Result.INTERRUPTED else result for why, result in OUTCOMES.items()}


class Running:
    """One executor call, awaited by the slot's `task`; `on_abandon(running)` is told when it is left behind."""

    __slots__ = ("_on_abandon", "_task", "_timers", "abandoned", "claim", "ended", "key", "started")

    def __init__(self, claim: Claim, task: asyncio.Task[Any], on_abandon: Callable[[Running], None]) -> None:
        self.claim = claim
        self.key = claim.key
        self.ended: Ended | None = None
        self.abandoned = False
        self.started = time.monotonic()
        self._task = task
        self._on_abandon = on_abandon
        self._timers: tuple[asyncio.TimerHandle, ...] = ()

    async def drive(self, executor: Executor) -> Outcome | None:
        """Make the attempt. The outcome to settle; None when nothing may be settled. Raises nothing."""
        if self.claim.timeout is not None:
            self._later(self.claim.timeout.total_seconds(), self.end, Ended.TIMEOUT)
        try:
            outcome = await executor.execute(self.claim)
        except asyncio.CancelledError as stopped:
            if self.ended is None:
                return Outcome(Result.FAILED, error="CancelledError: the task cancelled itself")
            return self.outcome(getattr(stopped, "log_tail", None))
        except Exception as error:  # an executor must not raise; if it does, the run must not vanish
            return Outcome(Result.CRASHED, error=f"executor failed: {type(error).__name__}: {error}")
        finally:
            for timer in self._timers:
                timer.cancel()
        # finished in spite of being ended: what was done is done, and the fence judges whether it counts
        return None if self.ended is Ended.LOST else outcome

    def end(self, why: Ended) -> None:
        """Stop the attempt: soft now, abandoned when it does not end. The first reason counts, but a loss overrides."""
        if self.abandoned:
            return
        first = self.ended is None
        if first or why is Ended.LOST:
            self.ended = why
        if first:
            self._task.cancel()
            self._later(kill_after_s(self.claim) + ABANDON_MARGIN_S, self._abandon)

    def outcome(self, log_tail: str | None = None) -> Outcome | None:
        """The outcome of an attempt that was ended from outside; None when it may not be settled."""
        if self.ended is None or self.ended not in OUTCOMES:
            return None
        detail = self.ended.value
        if self.ended is Ended.TIMEOUT and self.claim.timeout is not None:
            detail = f"timed out after {self.claim.timeout.total_seconds():g} s"
        return Outcome(OUTCOMES[self.ended], error=detail, log_tail=log_tail)

    def _later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        self._timers += (asyncio.get_running_loop().call_later(seconds, call, *args),)

    def _abandon(self) -> None:
        self.abandoned = True
        self._on_abandon(self)
