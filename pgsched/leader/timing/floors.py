"""Floors: the instant from which the leader's look reads each index, to skip dead and finished entries below.

An old snapshot (a dump, a standby's feedback, a forgotten transaction) keeps the entries of slots that were decided
long ago.

Invariant: the next look finds a row that has become due, if its transaction took less than MARGIN_S. A look below the
floors finds rows that became visible later: every BELOW_EVERY_S, or piece by piece where it reads much.
"""

from __future__ import annotations

import math
import time
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import leadership
from pgsched.db.queries.leader.leadership import EVER, Firsts, Instants

MARGIN_S = 3.0
BELOW_EVERY_S = 10.0
PIECE_EVERY_S = 1.0
SLOW_S, QUICK_S = 0.05, 0.01  # after a slower look below the next one reads less; after a quicker one, more
FIRST_PIECE_S = 60.0
WHOLE_S = 366 * 86400.0  # a piece that grows longer takes in all that is left
ROUNDING_S = 0.001


class Floors:
    """The floors of one term. Times are seconds since 1970, except for `next_at` and `now`, which are monotonic.

    `instants`: as far as is known, nothing that is due lies below.
    `next_at`: instant of the next look below.
    """

    def __init__(self) -> None:
        self.instants = EVER
        self._piece_s = math.inf
        self._high_s: float | None = None  # the present pass has looked at everything above
        self.next_at = 0.0

    def reset(self) -> None:
        """Forget the floors: the clock was moved, so rows that become due now may lie below them."""
        self.instants = EVER

    def raise_to(self, firsts: Firsts, now_s: float, *, jobs_left: bool = False) -> None:
        """Raise the floors to the earliest instants that a look has found.

        `jobs_left`: the look left out jobs, which will be looked for again.
        """
        self.instants = Instants(*(min(now_s if at is None else at, now_s) - MARGIN_S for at in firsts))
        if jobs_left:
            self.instants = self.instants._replace(job_s=-math.inf)

    def look_below(self, conn: Connection[Any], now: float) -> int:
        """Look at a piece of the rows below the floors, when it is time; return 1 if something was found there."""
        if now < self.next_at or self.instants == EVER:
            return 0
        high_s = max(self.instants) if self._high_s is None else self._high_s
        low_s = high_s - self._piece_s
        began = time.monotonic()
        found = leadership.look_below(conn, low_s, high_s)
        self._measure(time.monotonic() - began)
        self._high_s = None if low_s == -math.inf else low_s
        self.next_at = now + (BELOW_EVERY_S if self._high_s is None else PIECE_EVERY_S)
        pairs = zip(self.instants, found, strict=True)
        before, self.instants = (
            self.instants,
            Instants(*(floor if at is None else min(floor, at - ROUNDING_S) for floor, at in pairs)),
        )
        return int(self.instants != before)

    def _measure(self, took_s: float) -> None:
        """Adapt the length of the pieces to the time that the last one took."""
        if took_s > SLOW_S:
            self._piece_s = min(FIRST_PIECE_S, self._piece_s / 2)
        elif took_s < QUICK_S:
            self._piece_s = math.inf if self._piece_s > WHOLE_S else 4 * self._piece_s
