"""Outcomes that cannot be written now: tried again, first soon and then once a second, without delaying others.

Whoever may change a run may lock its row for as long as he likes; a trigger of a user's may wait for something else,
or a statement take longer than it may. Such an outcome waits here, and delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pgsched import log
from pgsched.core.model import Key, Settlement

logger = log.get("settle")
FIRST_S, LONGEST_S = 0.05, 1.0


class Aside:
    """True while any waits. `due`: those whose time has come; `on_due()` is called when there are some."""

    def __init__(self, on_due: Callable[[], object]) -> None:
        self.on_due = on_due
        self.due: list[Settlement] = []
        self.known: dict[Key, float] = {}  # how long each waited last
        self._waiting = 0

    def __bool__(self) -> bool:
        return bool(self.due or self._waiting)

    def put(self, settlements: Sequence[Settlement], why: str) -> None:
        """Let these wait, each longer than the time before. `why` they cannot be written now is logged once of each."""
        groups: dict[float, list[Settlement]] = {}
        for settlement in settlements:
            if (last_s := self.known.get(settlement.key)) is None:
                logger.warning("settling later", run=settlement.id, why=why)
            wait_s = FIRST_S if last_s is None else min(LONGEST_S, 2 * last_s)
            self.known[settlement.key] = wait_s
            groups.setdefault(wait_s, []).append(settlement)
        for wait_s, group in groups.items():
            self._waiting += len(group)
            asyncio.get_running_loop().call_later(wait_s, self._back, group)

    def take(self, most: int) -> list[Settlement]:
        """Those whose time has come, the first of them."""
        taken, self.due = self.due[:most], self.due[most:]
        return taken

    def forget(self, settlement: Settlement) -> None:
        """It is written, or lost."""
        self.known.pop(settlement.key, None)

    def _back(self, settlements: list[Settlement]) -> None:
        self._waiting -= len(settlements)
        self.due += settlements
        self.on_due()
