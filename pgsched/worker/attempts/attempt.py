"""One running attempt: the executor's call, its deadline, and why it was ended from outside.

The part of the worker that ends an attempt gives a reason, and the reason decides the outcome. An executor that does
not return within `kill_after` plus a margin is abandoned. So a handler that ignores its cancellation cannot keep a
place for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from pgsched import log
from pgsched.core.model import Claim, Key, Outcome, Result
from pgsched.execute.base import CANCELLED_ITSELF, Executor, get_kill_after_s

logger = log.get("worker")
ABANDON_MARGIN_S = 5.0


class EndReason(Enum):
    """Why an attempt was ended from outside; the value is the text for the run's error."""

    TIMEOUT = "timed out"
    CANCEL = "cancelled on request"
    SHUTDOWN = "handed back: the worker was stopped"
    PARKED = "handed back: the places of the worker were busy"
    DEADLINE = "handed back: the lease could not be renewed in time"
    LOST = "claim lost: another attempt owns the run or it has ended"


OUTCOMES = {
    EndReason.TIMEOUT: Result.TIMED_OUT,
    EndReason.CANCEL: Result.CANCELLED,
    EndReason.SHUTDOWN: Result.INTERRUPTED,
    EndReason.PARKED: Result.INTERRUPTED,
    EndReason.DEADLINE: Result.INTERRUPTED,
}
# The outcomes of claims that were never started: RELEASED instead of INTERRUPTED, because no attempt was made.
OUTCOMES_UNSTARTED = {
    why: Result.RELEASED if result is Result.INTERRUPTED else result for why, result in OUTCOMES.items()
}


class RunningAttempt:
    """One executor call, awaited by the task `task`.

    - `begun`: the attempt has begun; False while it waits for the call of a batched handler.
    - `end_reason`: why it was ended from outside, if it was.
    - `deadline`: when it times out, in monotonic seconds; None: never.
    - `settled`: whether the handler's own transaction has settled the run; None while it commits.
    - `on_abandon(running)`: called when the attempt is abandoned.
    """

    # On the class, because nearly no attempt changes them.
    begun = True
    end_reason: EndReason | None = None
    abandoned = False
    deadline: float | None = None
    settled: bool | None = False
    _timers: tuple[asyncio.TimerHandle, ...] = ()

    def __init__(
        self,
        claim: Claim,
        key: Key,
        started: float,
        task: asyncio.Task[Any],
        on_abandon: Callable[[RunningAttempt], None],
    ) -> None:
        self.claim = claim
        self.key = key
        self.started = started
        self._task = task
        self._on_abandon = on_abandon
        if claim.timeout is not None:
            self.deadline = started + claim.timeout.total_seconds()

    async def drive(self, executor: Executor, begun: Coroutine[Any, Any, Outcome] | None = None) -> Outcome | None:
        """Make the attempt, or continue `begun`; return the outcome to settle, or None where the claim is lost.

        Raises nothing.
        """
        if self.deadline is not None:
            self._watch_the_clock(self.deadline)
        outcome: Outcome | None
        try:
            outcome = await (begun or executor.execute(self.claim))
            if self.end_reason is EndReason.LOST:
                outcome = None
            # It finished although it was ended: the work is done, and the fence decides whether it counts.
        except asyncio.CancelledError as stopped:
            if self.end_reason is None:
                outcome = Outcome(Result.FAILED, error=CANCELLED_ITSELF, log_tail=getattr(stopped, "log_tail", None))
            else:
                outcome = self.outcome(getattr(stopped, "log_tail", None))
        except Exception as error:  # an executor must not raise; if it does, the run still gets an outcome
            outcome = Outcome(Result.CRASHED, error=f"executor failed: {type(error).__name__}: {error}")
        finally:
            for timer in self._timers:
                timer.cancel()
        return self.settled_by_handler(outcome) if self.settled else outcome

    def end(self, why: EndReason) -> None:
        """Cancel the attempt, and abandon it later if it does not end. The first reason counts; LOST overrides it."""
        if self.abandoned or (self.settled is not False and why in (EndReason.LOST, EndReason.DEADLINE)):
            return  # the handler has settled the run, so there is no claim to lose
        first = self.end_reason is None
        if first or why is EndReason.LOST:
            self.end_reason = why
        if first:
            self._task.cancel()
            self._later(get_kill_after_s(self.claim) + ABANDON_MARGIN_S, self._abandon)

    def outcome(self, log_tail: str | None = None) -> Outcome | None:
        """Return the outcome of an attempt that was ended from outside; None where it may not be settled."""
        if self.end_reason is None or self.end_reason not in OUTCOMES:
            return None
        detail = self.end_reason.value
        if self.end_reason is EndReason.TIMEOUT and self.deadline is not None:
            detail = f"timed out after {round(self.deadline - self.started, 3):g} s"
        return Outcome(OUTCOMES[self.end_reason], error=detail, log_tail=log_tail)

    def is_made_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Check whether this task awaits the executor's call."""
        return task is self._task and not self.abandoned

    # ---- requests of the handler through its Run, from any thread

    @property
    def stopping(self) -> bool:
        """Whether the attempt was asked to stop."""
        return self.end_reason is not None

    def extend(self, seconds: float) -> None:
        """Let the attempt time out `seconds` later; its timer checks the deadline again when it fires."""
        if self.deadline is not None:
            self.deadline += seconds

    def settling(self, done: bool | None) -> None:
        """Note the handler's own settlement: about to be committed (None), committed (True), or not (False)."""
        self.settled = done

    def _watch_the_clock(self, deadline: float) -> None:
        # A timer even where the deadline has passed: a blocked attempt that ends as soon as it can has not timed out.
        self._later(max(0.0, deadline - time.monotonic()), self._time_out)

    def _time_out(self) -> None:
        assert self.deadline is not None
        if time.monotonic() < self.deadline:
            self._watch_the_clock(self.deadline)
        else:
            self.end(EndReason.TIMEOUT)

    def settled_by_handler(self, outcome: Outcome | None) -> Outcome:
        """Return the outcome of a run that its handler has settled: a success. The database answers it with 'repeated'.

        A later result or error of the handler is only logged.
        """
        fields = {"run": self.claim.id, "task": self.claim.task[:80]}
        if outcome is None or outcome.result is not Result.SUCCEEDED:
            what = "it was stopped" if outcome is None else outcome.error
            logger.warning("handler did not end well after its transaction had settled its run", **fields,
                           error=(what or "")[:200])  # fmt: skip
        elif outcome.value is not None:
            logger.warning("what a handler returned is not kept: its transaction had settled its run", **fields,
                           instead="run.set_result() inside of the transaction")  # fmt: skip
        return Outcome(Result.SUCCEEDED)

    def _later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        self._timers += (asyncio.get_running_loop().call_later(seconds, call, *args),)

    def _abandon(self) -> None:
        self.abandoned = True
        self._on_abandon(self)


class BatchedAttempt(RunningAttempt):
    """An attempt that one call serves together with others.

    It begins when the call begins. It has no timer of its own, because the call has a time limit.
    """

    begun = False

    def _watch_the_clock(self, deadline: float) -> None:
        self.deadline = None


def job_of(claim: Claim) -> dict[str, Any]:
    """Return the job's id as a field for log lines; nothing for a run without a job."""
    return {} if claim.job_id is None else {"job": claim.job_id}
