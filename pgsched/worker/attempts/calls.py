"""Calls of batched handlers, as the worker sees them: a call takes a place, and its attempts take none.

The groups themselves are in execute/python/batches.py.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence, Sized

from pgsched import log
from pgsched.core.model import Claim, Key, Outcome, keys_of
from pgsched.worker.attempts.attempt import BatchedAttempt, RunningAttempt
from pgsched.worker.attempts.attempt_tasks import AttemptTasks, current_task
from pgsched.worker.attempts.capacity import Capacity


class BatchCalls:
    """The calls of batched handlers of one worker.

    - `drive(running)`: makes an attempt.
    - `report(claim, outcome, started, now)`: takes its outcome.
    """

    def __init__(
        self,
        capacity: Capacity,
        tasks: AttemptTasks,
        running: dict[Key, RunningAttempt],
        drive: Callable[[RunningAttempt], Awaitable[Outcome | None]],
        report: Callable[[Claim, Outcome | None, float, float], None],
        on_freed: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        """Prepare the calls.

        - `running`: all running attempts of the worker, those in calls included.
        - `on_freed()`: called when a call has ended.
        - `on_room()`: called when there may be room for claims.
        """
        self._capacity = capacity
        self._tasks = tasks
        self._running = running
        self._drive = drive
        self._report = report
        self._on_freed = on_freed
        self._on_room = on_room

    async def take_place(self, attempts: Sized) -> None:
        """Wait for a place and take it, for a call that serves these attempts."""
        await self._capacity.take_for_call(attempts)
        self._on_room()

    def begin(self, claims: Sequence[Claim]) -> None:
        """Mark the attempts of these claims as begun."""
        for running in filter(None, map(self._running.get, keys_of(claims))):
            running.begun = True

    def give_place(self) -> None:
        """Give the place of an ended call back."""
        self._capacity.last_end_at = time.monotonic()
        self._on_freed()

    def gather(self, claim: Claim) -> None:
        """Let a call serve this attempt together with others."""
        self._tasks.start(self._gather(claim))

    async def _gather(self, claim: Claim) -> None:
        log.ATTEMPT.set(claim)
        running = BatchedAttempt(claim, claim.key, time.monotonic(), current_task(), self._abandon)
        self._running[claim.key] = running
        self._ended(running, await self._drive(running))

    def _ended(self, running: RunningAttempt, outcome: Outcome | None) -> None:
        if self._running.pop(running.key, None) is not None:
            self._report(running.claim, outcome, running.started, time.monotonic())

    def _abandon(self, running: RunningAttempt) -> None:
        """Settle an attempt whose call does not stop."""
        self._ended(running, running.outcome())
