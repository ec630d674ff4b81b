"""Looking for queues with work, and telling the database that this worker may sleep. One statement does both.

Invariant: a worker looks at least once a period, because a notification may have been lost, and no more often than that
takes a small share of its time.
"""

from __future__ import annotations

import math
import time
from typing import Any

from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.queries.runs.claims import Wanted, claimable_queues
from pgsched.worker.claiming.cursor import SHARE, Budget
from pgsched.worker.claiming.known_queues import KnownQueues
from pgsched.worker.claiming.polling import BUSY_POLL_S, PollingPolicy, UnnotifiedPolling

BUSY_LOOK_S = 0.05


class Discovery:
    """Looks for queues among these (none given: among all), for one claimer. All times are monotonic seconds."""

    def __init__(self, among: tuple[str, ...], known: KnownQueues, poll_s: float) -> None:
        self.among = among
        self.polling = PollingPolicy(poll_s)
        self._known = known
        self._budget = Budget()
        self._looked_at = -math.inf
        self._round_s = 0.0  # what the last look took, with the claims after it
        self._after = ""  # behind this name the next look goes on

    @property
    def affordable_at(self) -> float:
        """When the next look is affordable."""
        return self._budget.next_at

    def look_at(self, every_s: float) -> float:
        """When to look for queues again: so long after the last look, and not before that is affordable."""
        return max(self._looked_at + every_s, self._budget.next_at)

    def look_soon(self) -> None:
        """Look as soon as that is affordable."""
        self._looked_at = -math.inf

    def forget(self) -> None:
        """A notification may have been missed, and the server may not know any more that this worker sleeps."""
        self.look_soon()
        self.polling.forget()

    def reach_by_polling(self) -> None:
        """No notification reaches this worker."""
        self.polling = UnnotifiedPolling(self.polling.poll_s)

    def wait_s(self, now: float) -> float:
        """Seconds to wait for a notification; to be woken for one queue puts off no further the look at all of them."""
        return min(self.polling.wait_s(now, self._budget.next_at), self.look_at(self.polling.period_s) - now)

    def waited(self, wait_s: float, *, full: bool) -> None:
        """Nothing woke the claimer for so long; `full`: it had no room."""
        if wait_s > BUSY_POLL_S:
            self.look_soon()
        if not full and time.monotonic() >= self._budget.next_at:
            self.polling.waited()

    async def look(self, conn: AsyncConnection[Any], wanted: Wanted, known: set[str], *, busy: bool) -> list[str]:
        """Say that this worker may sleep, if it is to. At least once a period, and more often for a `busy` one, to
        which nothing is notified: the queues that have open runs, but for those `known`."""
        now = time.monotonic()
        often_s = max(BUSY_LOOK_S, SHARE * self._round_s)  # many queues may have nothing for this worker
        every_s = min(self.polling.poll_s, often_s) if busy else self.polling.period_s
        look = now >= self.look_at(every_s)
        must_ask = self.polling.must_ask(now)
        if not (must_ask or look):
            return []
        if look:  # said before, because it may be told meanwhile to look once more
            self._looked_at = now
        found = await claimable_queues(
            conn, wanted, self.polling.asleep_s if must_ask else None, look=look, known=known, among=self.among,
            after=self._after,
        )  # fmt: skip
        if found.sure_s is not None:
            self.polling.asked(now, found.sure_s)
        if not look:
            return []
        self._known.learn(found.queues)
        # the dead entries of what was claimed are in its way too, and the runs of many queues that are not for it
        took_s = time.monotonic() - now
        self._budget.spent(took_s if found.queues else 2 * took_s, time.monotonic())
        self._after = found.after or ""
        if self._after:
            self.look_soon()
        return found.queues

    def found_nothing(self, tried_at: float) -> None:
        """The queues that a look found were tried from `tried_at` on, in vain."""
        now = time.monotonic()
        self._budget.spent(now - tried_at + self._budget.pause_s / SHARE, now)

    def ended(self, began: float) -> None:
        """The part of a round that began with a look, if there was one, is over."""
        if self._looked_at >= began:
            self._round_s = time.monotonic() - began
