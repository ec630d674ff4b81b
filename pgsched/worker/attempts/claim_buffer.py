"""The claims that wait for a place of this worker, in the order in which they were claimed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container

from pgsched import log
from pgsched.core.model import Claim, Key, Kind
from pgsched.worker.attempts.attempt import EndReason
from pgsched.worker.leases import Leases


class ClaimBuffer:
    """The claims that wait for a place, given out one by one until the buffer is stopped.

    - `let_go(claim, why)`: called with each claim that will never be started.
    - `gather(claim)`: lets a call serve the claim together with others.
    """

    def __init__(
        self,
        leases: Leases,
        running: Container[Key],
        let_go: Callable[[Claim, EndReason], None],
        left: int = 0,
    ) -> None:
        """Make an empty buffer.

        `running`: claims that have an attempt already. `runs_left`: how many runs may be started; 0: any number.
        """
        self.claims: deque[Claim] = deque()
        self.starting = 0  # how many of them already have a place: its task has not begun yet
        self.stopped = False
        self.runs_left = left
        self.on_last: Callable[[], object] = bool  # called when the last of `runs_left` runs is started
        # names of the tasks whose calls take places, not their attempts
        self.batched_tasks: frozenset[str] = frozenset()
        self.gather: Callable[[Claim], None]
        self._leases = leases
        self._running = running
        self._on_dropped = let_go

    def waiting_count(self) -> int:
        """Return for how many claims no place is taken yet."""
        return max(0, len(self.claims) - self.starting)

    def allowed(self, wanted: int) -> int:
        """Return how many of `wanted` claims may still be taken."""
        if self.stopped:
            return 0
        return min(wanted, self.runs_left - len(self.claims)) if self.runs_left > 0 else wanted

    def next(self, now: float) -> Claim | None:
        """Return the next claim to attempt; hand back claims whose deadline has passed.

        All claims in the buffer are held: claims that were lost or handed back have left it.
        """
        while self.claims and not self.stopped:
            claim = self.claims.popleft()
            if self._running and claim.key in self._running:
                continue
            if now >= self._leases.soonest and self._leases.past(claim, now):
                self._on_dropped(claim, EndReason.DEADLINE)
                continue
            if self.runs_left > 0:
                self._count()
            if self.batched_tasks and claim.task in self.batched_tasks and claim.kind == Kind.TASK:
                self.gather(claim)
                continue
            return claim
        return None

    def _count(self) -> None:
        self.runs_left -= 1
        if self.runs_left == 0:
            log.ATTEMPT.set(None)  # log lines of the worker's stop belong to no attempt
            self.on_last()  # this stops the buffer, so that 0 is not read as "any number"

    def remove(self, keys: set[Key], why: EndReason) -> None:
        """Remove the claims with these keys."""
        claims, self.claims = self.claims, deque()
        for claim in claims:  # one pass for all keys: thousands of claims may wait
            if claim.key in keys:
                self._on_dropped(claim, why)
            else:
                self.claims.append(claim)

    def hand_back(self, why: EndReason, but: int = 0) -> None:
        """Hand back all claims but the first `but`."""
        while len(self.claims) > but:
            self._on_dropped(self.claims.pop(), why)
