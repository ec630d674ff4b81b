"""The rule: when the database's clock is moved, no healthy worker loses a claim, and no claim outlives its lease.

A lease ends at an instant of the database's clock. Moved ahead, all leases have ended at once; moved back, what a dead
worker holds would be believed for as long as the clock went back. Monotonic time tells both from time that passed.

A clock that has jumped ahead by more than DOUBT_S is not believed until it has stood for as long: what would be decided
by it (slots, deadlines, what is old enough to be pruned) could not be taken back once the clock is right again.
"""

from __future__ import annotations

import math

STEP_S = 1.0  # corrections below that are of no consequence: a lease is a second at least
DOUBT_S = 60.0


class DatabaseClock:
    """The database's clock as seen against the monotonic time of this process. `trusted_at`: the monotonic instant from
    which on it is believed."""

    def __init__(self) -> None:
        self._earliest, self._latest = -math.inf, math.inf  # what it is ahead of monotonic time, at least and at most
        self.trusted_at = -math.inf

    def stepped_s(self, sent_at: float, answered_at: float, now_s: float) -> float:
        """Seconds by which it was moved since the last call, at least: negative: back; 0: it was not, or by less than
        STEP_S. `now_s` was read between the monotonic instants `sent_at` and `answered_at`."""
        earliest, latest = now_s - answered_at, now_s - sent_at
        ahead, back = earliest - self._latest, latest - self._earliest
        self._earliest, self._latest = earliest, latest
        stepped = ahead if ahead > STEP_S else back if back < -STEP_S else 0.0
        if stepped > DOUBT_S:
            self.trusted_at = answered_at + DOUBT_S
        elif stepped < 0:  # it is taken back
            self.trusted_at = -math.inf
        return stepped

    def is_trusted(self, now: float) -> bool:
        """Is it believed at this monotonic instant?"""
        return now >= self.trusted_at
