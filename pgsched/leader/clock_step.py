"""The rule: when the database's clock is moved, no healthy worker loses a claim, and no claim outlives its lease.

A lease ends at an instant of the database's clock. Moved ahead, all leases have ended at once; moved back, what a dead
worker holds would be believed for as long as the clock went back. Monotonic time tells both from time that passed.
"""

from __future__ import annotations

import math

STEP_S = 1.0  # corrections below that are of no consequence: a lease is a second at least


class DatabaseClock:
    """The database's clock as seen against the monotonic time of this process."""

    def __init__(self) -> None:
        self._earliest, self._latest = -math.inf, math.inf  # what it is ahead of monotonic time, at least and at most

    def stepped_s(self, sent_at: float, answered_at: float, now_s: float) -> float:
        """Seconds by which it was moved since the last call, at least: negative: back; 0: it was not, or by less than
        STEP_S. `now_s` was read between the monotonic instants `sent_at` and `answered_at`."""
        earliest, latest = now_s - answered_at, now_s - sent_at
        ahead, back = earliest - self._latest, latest - self._earliest
        self._earliest, self._latest = earliest, latest
        return ahead if ahead > STEP_S else back if back < -STEP_S else 0.0
