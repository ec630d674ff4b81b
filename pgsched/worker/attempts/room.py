"""How many claims a worker wants: one for each free place, and a prefetch where nothing speaks against it.

Invariant: what counts as begun once it is claimed (a suspect run, and one whose only attempt this is) is claimed for a
free place. While a suspect is held nothing is claimed ahead; until it has been held for a second, which those do not
survive that kill their worker at once, nothing is claimed that counts as begun.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pgsched.core.model import Claim, Claims, Key
from pgsched.worker.attempts.prefetch import Pace
from pgsched.worker.leases import Leases

MOST_AHEAD_SIZE = 1 << 24  # of arguments in JSON, claimed ahead
YOUNG_S = 1.0


class Room:
    """What one worker may still claim. `pace`: how fast its work is."""

    def __init__(self, concurrency: int, leases: Leases) -> None:
        self.pace = Pace(concurrency)
        self._leases = leases
        self._enough = 0
        self._suspects: dict[Key, float] = {}  # since when each is held
        self._size_each = 1  # of arguments: the mean of what was claimed with the largest, of all that is held ahead

    def took(self, claims: Sequence[Claim], now: float, *, alone: bool) -> None:
        """These were claimed; `alone`: nothing is held ahead beside them."""
        if isinstance(claims, Claims) and claims:
            size_each = claims.size // len(claims) + 1
            self._size_each = size_each if alone else max(size_each, self._size_each)
        if claims and claims[0].suspect:  # which is alone
            self._suspects[claims[0].key] = now

    def wanted(self, free: int, filled: int, parked: bool) -> int:
        """How many claims, with so many places free and so many claims there for them; `parked`: no place gets free."""
        ahead = 0
        if not parked and not self._held_suspects():
            ahead = min(self.pace.prefetch, MOST_AHEAD_SIZE // self._size_each)
        want = free + ahead - filled
        # refill the prefetch when half of it is used, not one by one
        return want if free > filled or want > ahead // 2 else 0

    def places(self, free: int, filled: int, _: bool) -> int:
        """How many places are free for what counts as begun once it is claimed."""
        young = time.monotonic() - YOUNG_S
        return 0 if any(since > young for since in self._held_suspects().values()) else max(0, free - filled)

    def enough(self) -> int:
        """How many claims ahead are not too many for the pace of now, or of when this was last asked."""
        before, self._enough = self._enough, self.pace.prefetch
        return max(before, self._enough)

    def _held_suspects(self) -> dict[Key, float]:
        if self._suspects:
            self._suspects = {key: since for key, since in self._suspects.items() if self._leases.holds(key)}
        return self._suspects
