"""Outcomes that wait to be written: new ones, and those whose runs somebody had locked (settling_later.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pgsched.core.model import Settlement
from pgsched.worker.settling_later import Aside

LARGEST_BATCH = 4000
BEHIND = LARGEST_BATCH  # outcomes that wait: from so many on the worker claims nothing


class SettlementQueue:
    """In order of arrival; what was set aside comes in turns with the rest, so that neither starves."""

    def __init__(self) -> None:
        self.aside = Aside(self._due_again)
        self.arrived = asyncio.Event()
        self._waiting: list[Settlement] = []
        self._aside_last = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, settlements: Sequence[Settlement]) -> None:
        """Hand over outcomes, one at least; returns at once."""
        if not self._waiting:
            self._idle.clear()
            self.arrived.set()
        self._waiting += settlements

    def is_behind(self, held: int) -> bool:
        """Do so many outcomes wait to be written, with those `held` on their way here, that no more runs should be
        claimed? A crash would have all of them run again, and a claim takes its time from the very server that is
        behind."""
        return len(self._waiting) + held >= BEHIND

    def next(self) -> list[Settlement]:
        """The next batch."""
        due = self.aside.due
        self._aside_last = bool(due) and not (self._aside_last and self._waiting)
        if self._aside_last:
            batch = self.aside.take(LARGEST_BATCH)
        else:
            batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
        if not (self._waiting or self.aside.due):
            self.arrived.clear()
        return batch

    def written(self) -> None:
        """A batch is written, or set aside."""
        if not (self._waiting or self.aside):
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until everything handed over so far is written."""
        await self._idle.wait()

    def _due_again(self) -> None:
        self.arrived.set()
