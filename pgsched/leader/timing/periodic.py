"""When something that is done again and again is due, and how the leader sleeps until then.

The rule: from `at` on it is done in a round that there is anyway; at `by`, and not later, there is a round for it. So
what is done seldom needs no rounds of its own. In a lull it is done only once `by` has come.
"""

from __future__ import annotations

import math
import time
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import leadership

LONGEST_PAUSE_S = 2.5  # of the leader: how late a lost notification may be noticed
FIRST_S, LATER = 0.02, 10.0
AHEAD_S = 5.5  # for so long it is told: longer than any pause
RENEW_S = 3.0
DEAF_S, FEW_IN_VAIN, MOST_IN_VAIN = 0.005, 3, 13


class Periodic:
    """When one thing is due again, from `at` on. All times are monotonic seconds of this process.

    `every_s`: its period. `early_s`: how much earlier it may be done in a round that there is anyway, half of the
    period at most.
    """

    def __init__(self, at: float, every_s: float = 0.0, early_s: float = LONGEST_PAUSE_S) -> None:
        self.every_s = every_s
        self.early_s = early_s
        self.exactly(at)

    def exactly(self, at: float) -> None:
        """Not before `at`, and not later."""
        self.at = self.by = at

    def within(self, now: float, period_s: float, early_s: float) -> None:
        """A period from `now` at the latest, and earlier by `early_s` at most."""
        self.by = now + period_s
        self.at = self.by - min(early_s, period_s / 2)

    def is_due(self, now: float, *, lull: bool = False) -> bool:
        """Whether it may be done at `now`; in a `lull`, only if it can wait no longer."""
        return now >= (self.by if lull else self.at)

    def start(self, now: float, *, lull: bool = False) -> bool:
        """Whether it is due; if so, it is due again a period from `now`."""
        if not self.is_due(now, lull=lull):
            return False
        self.within(now, self.every_s, self.early_s)
        return True

    def pause_s(self, lull_until: float, not_before: float = -math.inf) -> float:
        """Seconds until there has to be a round for it: at `by`, or at the end of a lull that it waits for. Before
        `not_before` there need be none."""
        now, wake_at = time.monotonic(), self.by
        if now < lull_until and self.at <= lull_until:
            wake_at = min(wake_at, lull_until)
        return max(wake_at, not_before) - now


class Sleep:
    """The pauses of one term, and what others are told of them. All times are monotonic seconds of this process.

    A commit that notifies waits for every other one that does. So the leader says until when it looks at nothing by
    itself, and only who makes something that is due before then notifies it (pgsched.tell_leader); while it is at work,
    nobody does. A transaction that was under way while the leader was at work, or while another one notified, is seen
    all the same: before it sleeps, the leader looks again after FIRST_S and after ten times that.
    """

    def __init__(self) -> None:
        self._told_until = -math.inf
        self._nap_s = FIRST_S
        self._in_vain = 0  # notifications in a row

    def woken(self) -> None:
        """A notification came: others, whose transactions overlap, may not have sent one."""
        self._nap_s = FIRST_S
        self._in_vain += 1

    def deaf_s(self, *, useful: bool) -> float:
        """For how long notifications are not heeded after a round: anybody may send any, and those that are in vain
        must not keep the leader busy."""
        self._in_vain = 0 if useful else min(self._in_vain, MOST_IN_VAIN)
        return DEAF_S * max(0, self._in_vain - FEW_IN_VAIN)

    def pause_s(self, conn: Connection[Any], seconds: float) -> float:
        """How long to pause after a round that has nothing to do for so many seconds."""
        if is_shared(conn):  # nobody can tell it
            return seconds
        if seconds <= FIRST_S:
            self._nap_s = FIRST_S
            return seconds
        if (now := time.monotonic()) + RENEW_S > self._told_until:
            if now > self._told_until:
                self._nap_s = FIRST_S
            leadership.sleeps(conn, AHEAD_S)
            self._told_until = now + AHEAD_S
        nap_s, self._nap_s = self._nap_s, LATER * self._nap_s
        return min(seconds, nap_s)


def breather(began: float, times: float = 1.0) -> float:
    """When to go on with what has many batches: others get so many times as much time as the last one took."""
    now = time.monotonic()
    return now + max(0.005, times * (now - began))
