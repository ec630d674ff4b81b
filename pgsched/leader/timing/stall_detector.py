"""Notice that the leader had to wait long for the database, and give claims one lease before reaping.

The workers waited as well. A network that dropped packets, a frozen server or a locked table kept their heartbeats
away, while the leader's session may have survived.

Invariant: the first process that gets an answer after an outage does not take back the claims of all others.
"""

from __future__ import annotations

import time

from pgsched import log
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import expired_leases

logger = log.get("leader")
NOTICED_S = 0.3  # even the shortest lease does not end within this time
MAX_GRACES = 3  # times in a row: where every round is slow, claims must still expire


class StallDetector:
    """How long the rounds of one leader took."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._since: float | None = None
        self._times = 0

    def record_round(self, seconds: float) -> None:
        """Note how long the last round took, in seconds."""
        self._last_s = seconds

    def record_failure(self, began: float) -> None:
        """Note that the round which began at monotonic `began` failed: the stall lasts until a round succeeds."""
        self._since = began if self._since is None else self._since

    def grace_s(self, conn: Connection, sent_at: float) -> float:
        """Return the seconds for which nothing may be reaped: one lease if the database did not answer for half of one.

        That is measured in the last round, or since monotonic `sent_at`. Else the result is 0.
        """
        began = sent_at if self._since is None else self._since
        slow_s = max(time.monotonic() - began, self._last_s)
        # ask before the state is reset: this query may fail as well
        shortest_s, longest_s = expired_leases.lease_bounds(conn) if slow_s >= NOTICED_S else (0.0, 0.0)
        self._last_s, self._since = 0.0, None
        if not shortest_s or slow_s < shortest_s / 2 or self._times >= MAX_GRACES:
            return 0.0
        self._times += 1
        logger.warning("the database was away, nothing is reaped for a lease", seconds=round(slow_s, 1),
                       lease_s=longest_s)  # fmt: skip
        return longest_s

    def record_search(self) -> None:
        """Note that claims were searched: the next stall counts anew."""
        self._times = 0
