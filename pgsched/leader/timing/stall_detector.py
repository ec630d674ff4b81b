"""A leader that had to wait for the database for long gives the claims one lease to be renewed before it reaps.

The workers waited as well: a network that dropped packets, a frozen server or a locked table kept their heartbeats
away, and the leader's session may have survived it. Whoever asks first then must not take everybody's claims.
"""

from __future__ import annotations

import time

from pgsched import log
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import expired_leases

logger = log.get("leader")
NOTICED_S = 0.3  # no lease is so short that its claims end in less
MOST = 3  # times in a row: where every round is slow, claims must end all the same


class StallDetector:
    """How long the rounds of one leader took."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._since: float | None = None
        self._times = 0

    def took(self, seconds: float) -> None:
        """The last round."""
        self._last_s = seconds

    def failed(self, began: float) -> None:
        """The round that began at monotonic `began` was broken off: it is not over before one goes on."""
        self._since = began if self._since is None else self._since

    def grace_s(self, conn: Connection, sent_at: float) -> float:
        """Seconds for which nothing is to be reaped, because the database did not answer for half a lease: in the last
        round, or since monotonic `sent_at`; 0 if it did."""
        began = sent_at if self._since is None else self._since
        slow_s = max(time.monotonic() - began, self._last_s)
        # asked before anything is forgotten: the question may fail as well
        shortest_s, longest_s = expired_leases.leases(conn) if slow_s >= NOTICED_S else (0.0, 0.0)
        self._last_s, self._since = 0.0, None
        if not shortest_s or slow_s < shortest_s / 2 or self._times >= MOST:
            return 0.0
        self._times += 1
        logger.warning("the database was away, nothing is reaped for a lease", seconds=round(slow_s, 1),
                       lease_s=longest_s)  # fmt: skip
        return longest_s

    def reaped(self) -> None:
        """Claims were looked at: the next stall counts anew."""
        self._times = 0
