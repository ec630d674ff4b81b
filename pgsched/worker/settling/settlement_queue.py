"""The queue of outcomes that wait to be written: new ones, and those that are tried again (settling_later.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pgsched.core.model import Settlement
from pgsched.worker.settling.settling_later import RetriedOutcomes

LARGEST_BATCH = 4000
BEHIND = LARGEST_BATCH  # from this many waiting outcomes on, the worker claims nothing


class SettlementQueue:
    """The waiting outcomes, in order of arrival.

    Outcomes that are tried again take turns with new ones, so that neither kind starves.
    """

    def __init__(self) -> None:
        self.retried = RetriedOutcomes(self._due_again)
        self.arrived = asyncio.Event()
        self._waiting: list[Settlement] = []
        self._took_retried_last = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, settlements: Sequence[Settlement]) -> None:
        """Add outcomes, at least one; returns at once."""
        if not self._waiting:
            self._idle.clear()
            self.arrived.set()
        self._waiting += settlements

    def is_behind(self, on_their_way: int) -> bool:
        """Check whether too many outcomes wait to claim more runs; `on_their_way`: outcomes on their way to this queue.

        After a crash all of them would run again. Claims also take time of the database server that is behind.
        """
        return len(self._waiting) + on_their_way >= BEHIND

    def next(self) -> list[Settlement]:
        """Return the next batch."""
        due = self.retried.due
        self._took_retried_last = bool(due) and not (self._took_retried_last and self._waiting)
        if self._took_retried_last:
            batch = self.retried.take(LARGEST_BATCH)
        else:
            batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
        if not (self._waiting or self.retried.due):
            self.arrived.clear()
        return batch

    def written(self) -> None:
        """Note that a batch is written or set aside."""
        if not (self._waiting or self.retried):
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until all outcomes so far are written."""
        await self._idle.wait()

    def _due_again(self) -> None:
        self.arrived.set()
