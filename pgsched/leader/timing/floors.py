"""Where the leader begins to look in an index, so that what is dead or done at its beginning is not read each round.

An old snapshot (a dump, a standby's feedback, a forgotten transaction) keeps the entries of slots that were decided
long ago. Invariant: what has become due is found by the next look, if its transaction took less than MARGIN_S; what
became visible later is found by a look below, every BELOW_EVERY_S, or piece by piece where that reads much.
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
SLOW_S, QUICK_S = 0.05, 0.01  # a look below that takes longer reads less the next time; one that takes less, more
FIRST_PIECE_S = 60.0
WHOLE_S = 366 * 86400.0  # a piece of this length is all that is left
ROUNDING_S = 0.001


class Floors:
    """`since`: nothing that is due lies below, as far as is known. In seconds since 1970, as all but the monotonic
    times `next_at` (of the next look below) and `now`."""

    def __init__(self) -> None:
        self.since = EVER
        self._piece_s = math.inf
        self._high_s: float | None = None  # what lies above was looked at in this pass
        self.next_at = 0.0

    def reset(self) -> None:
        """Know nothing: the clock was moved, and what becomes due now may lie below."""
        self.since = EVER

    def rise(self, firsts: Firsts, now_s: float, *, jobs_left: bool = False) -> None:
        """A look has found these at the earliest. `jobs_left`: it has left out jobs, which will be looked for again."""
        self.since = Instants(*(min(now_s if at is None else at, now_s) - MARGIN_S for at in firsts))
        if jobs_left:
            self.since = self.since._replace(job_s=-math.inf)

    def look_below(self, conn: Connection[Any], now: float) -> int:
        """Look at a piece of what lies below, when it is time; 1 if something was found there."""
        if now < self.next_at or self.since == EVER:
            return 0
        high_s = max(self.since) if self._high_s is None else self._high_s
        low_s = high_s - self._piece_s
        began = time.monotonic()
        found = leadership.look_below(conn, low_s, high_s)
        self._measure(time.monotonic() - began)
        self._high_s = None if low_s == -math.inf else low_s
        self.next_at = now + (BELOW_EVERY_S if self._high_s is None else PIECE_EVERY_S)
        pairs = zip(self.since, found, strict=True)
        before, self.since = (
            self.since,
            Instants(*(floor if at is None else min(floor, at - ROUNDING_S) for floor, at in pairs)),
        )
        return int(self.since != before)

    def _measure(self, took_s: float) -> None:
        if took_s > SLOW_S:
            self._piece_s = min(FIRST_PIECE_S, self._piece_s / 2)
        elif took_s < QUICK_S:
            self._piece_s = math.inf if self._piece_s > WHOLE_S else 4 * self._piece_s
