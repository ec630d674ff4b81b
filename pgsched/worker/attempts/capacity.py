"""The places of a worker, and how many claims it wants for them.

An attempt takes a place, and so does a call that serves many attempts. A worker has `concurrency` places. It wants one
claim for each free place, and a prefetch where no rule below forbids it.

Invariant: a run that counts as begun once it is claimed is claimed only for a free place. Two kinds of runs count so:
suspect runs, and runs whose `max_attempts` is 1.

While the worker holds a suspect run, it claims nothing ahead. In the first second it also claims no other run that
counts as begun. A run that kills its worker at once does so within that second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence, Sized

from pgsched.core.model import Claim, Claims, Key
from pgsched.worker.attempts.prefetch import Pace
from pgsched.worker.leases import Leases

MOST_AHEAD_SIZE = 1 << 24  # total length of the arguments, in JSON, of runs that are claimed ahead
YOUNG_S = 1.0
PARKED_S = 0.2  # the longest that a claim waits for a place here: another worker may have a free one


class Capacity:
    """The places of one worker. All times are monotonic seconds.

    - `busy`: how many places are taken.
    - `pace`: how fast the worker's runs are.
    """

    def __init__(self, concurrency: int, leases: Leases) -> None:
        self.concurrency = concurrency
        self.pace = Pace(concurrency)
        self.busy = 0
        self.abandoned = 0  # attempts that do not stop; other attempts have their places
        self.calls: set[Sized] = set()  # for each call that waits for a place: its attempts
        self.last_end_at = 0.0  # when an attempt or a call last ended
        self._taken_at = 0.0  # when claims last arrived
        self._freed = asyncio.Event()
        self._leases = leases
        self._enough = 0
        self._suspects: dict[Key, float] = {}  # the time at which each was claimed
        self._mean_args_length = 1  # mean length of the arguments in one claim; the largest mean of the claims ahead

    # ---- places

    def free(self) -> int:
        """Return how many places are free, without the places that calls wait for."""
        return self.concurrency - self.busy - len(self.calls)

    def give_back(self) -> None:
        """Free a place."""
        self.busy -= 1
        self._freed.set()

    async def take_for_call(self, attempts: Sized) -> None:
        """Wait for a place and take it, for a call that serves these attempts."""
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
        """Note that these runs were claimed; `alone`: no other claim waits for a place."""
        if alone and not self.busy:
            self.pace.waited(self.last_end_at, now)
        self._taken_at = now
        if isinstance(claims, Claims) and claims:
            size_each = claims.size // len(claims) + 1
            self._mean_args_length = size_each if alone else max(size_each, self._mean_args_length)
        if claims and claims[0].suspect:  # a suspect run is claimed alone
            self._suspects[claims[0].key] = now

    def wanted(self, waiting_claims: int) -> int:
        """Return how many claims are wanted now, when `waiting_claims` claims already wait for a place."""
        free, ahead = self._unclaimed(), 0
        parked = self.busy > 0 and time.monotonic() >= self.last_end_at + PARKED_S
        if not parked and not self._held_suspects():
            ahead = min(self.pace.prefetch, MOST_AHEAD_SIZE // self._mean_args_length)
        want = free + ahead - waiting_claims
        # refill the prefetch when half is used, not claim by claim
        return want if free > waiting_claims or want > ahead // 2 else 0

    def places(self, waiting_claims: int) -> int:
        """Return how many places are free for runs that count as begun once they are claimed."""
        young = time.monotonic() - YOUNG_S
        if any(since > young for since in self._held_suspects().values()):
            return 0
        return max(0, self._unclaimed() - waiting_claims)

    def enough(self, now: float) -> int | None:
        """Return how many claims ahead are enough for the pace now, or at the last call, whichever is more.

        Returns 0 where no attempt ends, and None (no limit) where claims have just arrived.
        """
        before, self._enough = self._enough, self.pace.prefetch
        if now <= self._taken_at + PARKED_S:
            return None
        return max(before, self._enough) if now <= self.last_end_at + PARKED_S else 0

    def _unclaimed(self) -> int:
        """Return how many places are free; attempts whose call waits for a place need no other one."""
        return self.concurrency - self.busy - sum(map(len, self.calls))

    def _held_suspects(self) -> dict[Key, float]:
        if self._suspects:
            self._suspects = {key: since for key, since in self._suspects.items() if self._leases.holds(key)}
        return self._suspects
