"""Periods of recurring work, and the leader's sleep between two rounds.

Invariant: from `at` on, the work is done in a round that takes place anyway. At `by`, at the latest, there is a round
for it.

So rare work needs no rounds of its own. In a lull it is done only once `by` has come.
"""

from __future__ import annotations

import math
import time
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import leadership

LONGEST_PAUSE_S = 2.5  # longest pause of the leader: how late a lost notification may be noticed
FIRST_S, NAP_FACTOR = 0.02, 10.0  # the first nap, and how many times longer each further one is
AHEAD_S = 5.5  # how far ahead the leader announces its pause: longer than any pause
RENEW_S = 3.0  # announce again when less than this is left
DEAF_S, FEW_IN_VAIN, MOST_IN_VAIN = 0.005, 3, 13  # deafness per useless notification beyond the first few, up to most


class Periodic:
    """When one piece of recurring work is due, from `at` on. All times are monotonic seconds of this process.

    `every_s`: its period.
    `early_s`: how much earlier it may be done in a round that takes place anyway, at most half of the period.
    """

    def __init__(self, at: float, every_s: float = 0.0, early_s: float = LONGEST_PAUSE_S) -> None:
        self.every_s = every_s
        self.early_s = early_s
        self.set_due_at(at)

    def set_due_at(self, at: float) -> None:
        """Make it due at `at`, neither earlier nor later."""
        self.at = self.by = at

    def set_due_within(self, now: float, period_s: float, early_s: float) -> None:
        """Make it due a period from `now` at the latest, and earlier by `early_s` at most."""
        self.by = now + period_s
        self.at = self.by - min(early_s, period_s / 2)

    def is_due(self, now: float, *, lull: bool = False) -> bool:
        """Check whether it may be done at `now`; in a `lull`, only if it can wait no longer."""
        return now >= (self.by if lull else self.at)

    def start(self, now: float, *, lull: bool = False) -> bool:
        """Check whether it is due; if so, make it due again a period from `now`."""
        if not self.is_due(now, lull=lull):
            return False
        self.set_due_within(now, self.every_s, self.early_s)
        return True

    def pause_s(self, lull_until: float, not_before: float = -math.inf) -> float:
        """Return the seconds until there must be a round for it: at `by`, or at the end of a lull that it waits for.

        Before `not_before` no round is needed.
        """
        now, wake_at = time.monotonic(), self.by
        if now < lull_until and self.at <= lull_until:
            wake_at = min(wake_at, lull_until)
        return max(wake_at, not_before) - now


class Sleep:
    """The pauses of one term, which the leader announces. All times are monotonic seconds of this process.

    A commit that notifies waits for every other commit that notifies. So the leader announces until when it does not
    look by itself. A transaction notifies it only for rows that are due before then (pgsched.tell_leader). While the
    leader is at work, no transaction notifies it.

    A transaction may be under way while the leader is at work, or while another one notifies. To see its rows all the
    same, the leader looks again after FIRST_S, and after ten times that, before it sleeps.
    """

    def __init__(self) -> None:
        self._announced_until = -math.inf
        self._nap_s = FIRST_S
        self._useless_notifications = 0  # useless notifications in a row

    def note_notification(self) -> None:
        """Note that a notification came: overlapping transactions may not have sent one, so the next naps are short."""
        self._nap_s = FIRST_S
        self._useless_notifications += 1

    def deaf_s(self, *, useful: bool) -> float:
        """Return the seconds after a round in which notifications are ignored.

        Any session may send notifications, and useless ones must not keep the leader busy.
        """
        self._useless_notifications = 0 if useful else min(self._useless_notifications, MOST_IN_VAIN)
        return DEAF_S * max(0, self._useless_notifications - FEW_IN_VAIN)

    def pause_s(self, conn: Connection[Any], seconds: float) -> float:
        """Return how long to pause after a round with nothing to do for `seconds`, and announce the pause."""
        if is_shared(conn):  # no notification reaches the leader
            return seconds
        if seconds <= FIRST_S:
            self._nap_s = FIRST_S
            return seconds
        if (now := time.monotonic()) + RENEW_S > self._announced_until:
            if now > self._announced_until:
                self._nap_s = FIRST_S
            leadership.announce_sleep(conn, AHEAD_S)
            self._announced_until = now + AHEAD_S
        nap_s, self._nap_s = self._nap_s, NAP_FACTOR * self._nap_s
        return min(seconds, nap_s)


def next_batch_at(began: float, times: float = 1.0) -> float:
    """Return when to go on with work of many batches: after a pause `times` as long as the last batch.

    `began`: when that batch began. Both are monotonic instants.
    """
    now = time.monotonic()
    return now + max(0.005, times * (now - began))
