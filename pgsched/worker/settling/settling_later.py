"""Outcomes that cannot be written now: they wait here and are tried again, without delaying others.

The pauses grow up to one second. Any role that may change a run may lock its row for any time. A trigger of a user may
wait for something else, or a statement may exceed its timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pgsched import log
from pgsched.core.model import Key, Settlement

logger = log.get("settle")
FIRST_S, LONGEST_S = 0.05, 1.0


class RetriedOutcomes:
    """The outcomes that wait to be tried again; true while there are any.

    - `due`: the outcomes whose time has come.
    - `on_due()`: called when there are new ones in `due`.
    - `last_wait_s`: how many seconds each one waited last.
    """

    def __init__(self, on_due: Callable[[], object]) -> None:
        self.on_due = on_due
        self.due: list[Settlement] = []
        self.last_wait_s: dict[Key, float] = {}
        self._waiting = 0

    def __bool__(self) -> bool:
        return bool(self.due or self._waiting)

    def put(self, settlements: Sequence[Settlement], why: str) -> None:
        """Let these outcomes wait, each longer than the time before; log `why` once for each."""
        groups: dict[float, list[Settlement]] = {}
        for settlement in settlements:
            if (last_s := self.last_wait_s.get(settlement.key)) is None:
                logger.warning("settling later", run=settlement.id, why=why)
            wait_s = FIRST_S if last_s is None else min(LONGEST_S, 2 * last_s)
            self.last_wait_s[settlement.key] = wait_s
            groups.setdefault(wait_s, []).append(settlement)
        for wait_s, group in groups.items():
            self._waiting += len(group)
            asyncio.get_running_loop().call_later(wait_s, self._back, group)

    def take(self, most: int) -> list[Settlement]:
        """Return the first `most` outcomes whose time has come."""
        taken, self.due = self.due[:most], self.due[most:]
        return taken

    def forget(self, settlement: Settlement) -> None:
        """Forget an outcome that is written or lost."""
        self.last_wait_s.pop(settlement.key, None)

    def _back(self, settlements: list[Settlement]) -> None:
        self._waiting -= len(settlements)
        self.due += settlements
        self.on_due()
