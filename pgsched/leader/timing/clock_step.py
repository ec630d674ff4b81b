"""Notice steps of the database's clock.

Invariant: when the database's clock is moved, no healthy worker loses a claim, and no claim outlives its lease.

A lease ends at an instant of the database's clock. If the clock is moved ahead, all leases end at once. If it is moved
back, the claims of a dead worker stay valid for as long as the clock went back. A comparison with monotonic time shows
both.

A clock that has jumped ahead by more than DOUBT_S is not trusted until it has stayed there for DOUBT_S. Decisions by it
(slots, deadlines, pruning) could not be taken back once the clock is right again.
"""

from __future__ import annotations

import math

STEP_S = 1.0  # smaller corrections do not matter: a lease is at least one second
DOUBT_S = 60.0


class DatabaseClock:
    """The database's clock, compared with the monotonic time of this process.

    `trusted_at`: monotonic instant from which the clock is trusted.
    """

    def __init__(self) -> None:
        # how far the clock is ahead of monotonic time, at least and at most
        self._earliest, self._latest = -math.inf, math.inf
        self.trusted_at = -math.inf

    def stepped_s(self, sent_at: float, answered_at: float, now_s: float) -> float:
        """Return the least number of seconds by which the clock was moved since the last call.

        Negative: it was moved back. 0: it was not moved, or by less than STEP_S. `now_s` is the database's clock, read
        between the monotonic instants `sent_at` and `answered_at`.
        """
        earliest, latest = now_s - answered_at, now_s - sent_at
        ahead, back = earliest - self._latest, latest - self._earliest
        self._earliest, self._latest = earliest, latest
        stepped = ahead if ahead > STEP_S else back if back < -STEP_S else 0.0
        if stepped > DOUBT_S:
            self.trusted_at = answered_at + DOUBT_S
        elif stepped < 0:  # the step ahead was taken back
            self.trusted_at = -math.inf
        return stepped
