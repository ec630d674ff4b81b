"""Claims that wait for a place of this worker, in the order in which they were claimed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container

from pgsched import log
from pgsched.core.model import Claim, Key, Kind
from pgsched.worker.attempts.attempt import Ended
from pgsched.worker.leases import Leases


class ClaimBuffer:
    """Gives out claims until it is stopped. `let_go(claim, why)` is told of each one that is never to be started;
    `gather(claim)` has one served by a call with others."""

    def __init__(
        self,
        leases: Leases,
        running: Container[Key],
        let_go: Callable[[Claim, Ended], None],
        left: int = 0,
    ) -> None:
        """`running`: claims that are attempted already. `left`: how many may be started, 0 for any number."""
        self.claims: deque[Claim] = deque()
        self.starting = 0  # for so many of them a place is taken by a task that has not begun yet
        self.stopped = False
        self.left = left
        self.on_last: Callable[[], object] = bool  # called when the last one of `left` is started
        self.gathered: frozenset[str] = frozenset()  # tasks whose attempts take no place: their calls do
        self.gather: Callable[[Claim], None]
        self._leases = leases
        self._running = running
        self._let_go = let_go

    def held(self) -> int:
        """For how many of them no place is taken yet."""
        return max(0, len(self.claims) - self.starting)

    def allowed(self, wanted: int) -> int:
        """How many of so many claims may still be taken."""
        if self.stopped:
            return 0
        return min(wanted, self.left - len(self.claims)) if self.left > 0 else wanted

    def next(self, now: float) -> Claim | None:
        """The next claim to attempt. Those whose deadline has passed are handed back. (What waits is held: what is let
        go of, or lost, waits no more.)"""
        while self.claims and not self.stopped:
            claim = self.claims.popleft()
            if self._running and claim.key in self._running:
                continue
            if now >= self._leases.soonest and self._leases.past(claim, now):
                self._let_go(claim, Ended.DEADLINE)
                continue
            if self.left > 0:
                self._count()
            if self.gathered and claim.task in self.gathered and claim.kind == Kind.TASK:
                self.gather(claim)
                continue
            return claim
        return None

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            log.ATTEMPT.set(None)  # what is said of it is of no attempt
            self.on_last()  # which stops this buffer: from here on 0 would mean any number

    def remove(self, keys: set[Key], why: Ended) -> None:
        """Let go of these."""
        claims, self.claims = self.claims, deque()
        for claim in claims:  # once for all of them: thousands may wait
            if claim.key in keys:
                self._let_go(claim, why)
            else:
                self.claims.append(claim)

    def hand_back(self, why: Ended, but: int = 0) -> None:
        """Let go of all but so many that are next."""
        while len(self.claims) > but:
            self._let_go(self.claims.pop(), why)
