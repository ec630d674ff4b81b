"""How many attempts a worker makes at once, and how many claims it wants for them.

An attempt takes a place, and so does a call that serves many attempts; a worker has `concurrency` places. It wants one
claim for each free place, and a prefetch where nothing speaks against it.

Invariant: what counts as begun once it is claimed (a suspect run, and one whose only attempt this is) is claimed for a
free place. While a suspect is held nothing is claimed ahead; until it has been held for a second, which those do not
survive that kill their worker at once, nothing is claimed that counts as begun.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence, Sized

from pgsched.core.model import Claim, Claims, Key
from pgsched.worker.attempts.prefetch import Pace
from pgsched.worker.leases import Leases

MOST_AHEAD_SIZE = 1 << 24  # of arguments in JSON, claimed ahead
YOUNG_S = 1.0
PARKED_S = 0.2  # no claim waits longer for a place of this worker: another one may be free


class Capacity:
    """The places of one worker, of which `busy` are taken. `pace`: how fast its work is. Times are monotonic."""

    def __init__(self, concurrency: int, leases: Leases) -> None:
        self.concurrency = concurrency
        self.pace = Pace(concurrency)
        self.busy = 0
        self.abandoned = 0  # attempts that do not stop: their places were given away
        self.calls: set[Sized] = set()  # the attempts of each call that waits for a place
        self.moved_at = 0.0  # when an attempt or a call last ended
        self._taken_at = 0.0  # when claims last came
        self._freed = asyncio.Event()
        self._leases = leases
        self._enough = 0
        self._suspects: dict[Key, float] = {}  # since when each is held
        self._size_each = 1  # of arguments: the mean of what was claimed with the largest, of all that is held ahead

    # ---- places

    def free(self) -> int:
        """How many places are free, beside those that calls wait for."""
        return self.concurrency - self.busy - len(self.calls)

    def give_back(self) -> None:
        """A place is free again."""
        self.busy -= 1
        self._freed.set()

    async def take_for_call(self, attempts: Sized) -> None:
        """Wait for a place, and take it for a call that serves these attempts."""
        self.calls.add(attempts)
        try:
            while self.busy >= self.concurrency:
                self._freed.clear()
                await self._freed.wait()
        finally:
            self.calls.discard(attempts)
        self.busy += 1

    # ---- claims

    def took(self, claims: Sequence[Claim], now: float, *, alone: bool) -> None:
        """These were claimed; `alone`: nothing is held ahead beside them."""
        if alone and not self.busy:
            self.pace.waited(self.moved_at, now)
        self._taken_at = now
        if isinstance(claims, Claims) and claims:
            size_each = claims.size // len(claims) + 1
            self._size_each = size_each if alone else max(size_each, self._size_each)
        if claims and claims[0].suspect:  # which is alone
            self._suspects[claims[0].key] = now

    def wanted(self, held: int) -> int:
        """How many claims are wanted now, if so many are held for which no place is taken yet."""
        free, ahead = self._unclaimed(), 0
        parked = self.busy > 0 and time.monotonic() >= self.moved_at + PARKED_S
        if not parked and not self._held_suspects():
            ahead = min(self.pace.prefetch, MOST_AHEAD_SIZE // self._size_each)
        want = free + ahead - held
        # refill the prefetch when half of it is used, not one by one
        return want if free > held or want > ahead // 2 else 0

    def places(self, held: int) -> int:
        """How many places are free for what counts as begun once it is claimed."""
        young = time.monotonic() - YOUNG_S
        return 0 if any(since > young for since in self._held_suspects().values()) else max(0, self._unclaimed() - held)

    def enough(self, now: float) -> int | None:
        """How many claims ahead are enough for the pace of now, or of when this was last asked; none where no attempt
        ends. None: as many as there are, because some have just come."""
        before, self._enough = self._enough, self.pace.prefetch
        if now <= self._taken_at + PARKED_S:
            return None
        return max(before, self._enough) if now <= self.moved_at + PARKED_S else 0

    def _unclaimed(self) -> int:
        """How many places are free; attempts whose call waits for one need no other."""
        return self.concurrency - self.busy - sum(map(len, self.calls))

    def _held_suspects(self) -> dict[Key, float]:
        if self._suspects:
            self._suspects = {key: since for key, since in self._suspects.items() if self._leases.holds(key)}
        return self._suspects
