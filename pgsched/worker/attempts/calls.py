"""Calls that each serve many attempts (execute/python/batches.py). A call takes a place, its attempts take none."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence, Sized

from pgsched import log
from pgsched.core.model import Claim, Key, Outcome, keys_of
from pgsched.worker.attempts.attempt import Gathered, Running
from pgsched.worker.attempts.attempt_tasks import AttemptTasks, current
from pgsched.worker.attempts.capacity import Capacity


class BatchCalls:
    """The calls of one worker. `drive(running)` makes an attempt, `report(claim, outcome, started, now)` takes it."""

    def __init__(
        self,
        capacity: Capacity,
        tasks: AttemptTasks,
        running: dict[Key, Running],
        drive: Callable[[Running], Awaitable[Outcome | None]],
        report: Callable[[Claim, Outcome | None, float, float], None],
        on_freed: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        """`running`: the attempts of the worker, those of calls among them. `on_freed()`: a call has ended."""
        self._capacity = capacity
        self._tasks = tasks
        self._running = running
        self._drive = drive
        self._report = report
        self._on_freed = on_freed
        self._on_room = on_room

    async def take_place(self, attempts: Sized) -> None:
        """Wait for a place, and take it for a call that serves these attempts."""
        await self._capacity.take_for_call(attempts)
        self._on_room()

    def begin(self, claims: Sequence[Claim]) -> None:
        """The call begins, for these."""
        for running in filter(None, map(self._running.get, keys_of(claims))):
            running.begun = True

    def give_place(self) -> None:
        """The call has ended."""
        self._capacity.moved_at = time.monotonic()
        self._on_freed()

    def gather(self, claim: Claim) -> None:
        """Have this attempt served by a call with others."""
        self._tasks.start(self._gather(claim))

    async def _gather(self, claim: Claim) -> None:
        log.ATTEMPT.set(claim)
        running = Gathered(claim, claim.key, time.monotonic(), current(), self._abandon)
        self._running[claim.key] = running
        self._ended(running, await self._drive(running))

    def _ended(self, running: Running, outcome: Outcome | None) -> None:
        if self._running.pop(running.key, None) is not None:
            self._report(running.claim, outcome, running.started, time.monotonic())

    def _abandon(self, running: Running) -> None:
        """Its call does not stop: settle it without waiting any longer."""
        self._ended(running, running.outcome())
