"""The look for queues with work, and the announcement of a worker's sleep; one statement does both.

Invariant: a worker looks at least once a period, because a notification may have been lost. Looks take only a small
share of its time.
"""

from __future__ import annotations

import math
import time
from typing import Any

from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.queries.runs.claims import WorkerOffer
from pgsched.db.queries.runs.queue_search import claimable_queues, newest_queues
from pgsched.worker.claiming.cursor import SHARE, Budget
from pgsched.worker.claiming.known_queues import KnownQueues
from pgsched.worker.claiming.polling import BUSY_POLL_S, PollingPolicy, UnnotifiedPolling

BUSY_LOOK_S = 0.05
NEWEST = 200  # runs that are read to find the queue of a notification


class Discovery:
    """The looks of one claimer for queues with work, among the queues `among` (empty: all). Times are monotonic."""

    def __init__(self, among: tuple[str, ...], known: KnownQueues, poll_s: float) -> None:
        self.among = among
        self.polling = PollingPolicy(poll_s)
        self._known = known
        self._budget = Budget()
        self._looked_at = -math.inf
        self._round_s = 0.0  # how long the last look took, with the claims after it
        self._after = ""  # the next look starts after this queue's name
        self._unknown_heard = False  # a notification was about a queue that is not known

    def look_at(self, every_s: float) -> float:
        """Return when the next look is due: `every_s` after the last one, but not before it is affordable."""
        return max(self._looked_at + every_s, self._budget.next_at)

    def look_soon(self) -> None:
        """Make the next look due as soon as it is affordable."""
        self._looked_at = -math.inf

    def heard_unknown(self) -> None:
        """Note a notification about a queue that is not known."""
        self._unknown_heard = not self.among
        self.look_soon()

    async def newest(self, conn: AsyncConnection[Any], wanted: WorkerOffer) -> list[str] | None:
        """Return the queues of the newest runs that this worker may take; None if no notification asks for that.

        A look at all queues takes too long where there are thousands. A run that was just made is among the newest.
        """
        if not self._unknown_heard:
            return None
        self._unknown_heard = False  # before the statement, because another notification may come meanwhile
        found = await newest_queues(conn, wanted, NEWEST)
        self._known.learn(found)
        return found

    def forget(self) -> None:
        """Start again: notifications may have been missed, and the server may not know that this worker sleeps."""
        self.look_soon()
        self.polling.forget()

    def reach_by_polling(self) -> None:
        """Poll from now on as a worker that no notification reaches."""
        self.polling = UnnotifiedPolling(self.polling.poll_s)

    def wait_s(self, now: float) -> float:
        """Return the seconds to wait for a notification.

        A wake-up for one queue does not delay the look at all queues.
        """
        return min(self.polling.wait_s(now, self._budget.next_at), self.look_at(self.polling.period_s) - now)

    def waited(self, wait_s: float, *, full: bool) -> None:
        """Note that nothing woke the claimer for `wait_s` seconds; `full`: it had no room."""
        if wait_s > BUSY_POLL_S:
            self.look_soon()
        if not full and time.monotonic() >= self._budget.next_at:
            self.polling.waited()

    async def look(self, conn: AsyncConnection[Any], wanted: WorkerOffer, known: set[str], *, busy: bool) -> list[str]:
        """Look for queues with work if a look is due, and announce this worker's sleep if it may sleep.

        A look is due once a period. For a `busy` worker, which gets no notifications, it is due more often. Returns the
        queues found, without those in `known`.
        """
        now = time.monotonic()
        often_s = max(BUSY_LOOK_S, SHARE * self._round_s)  # a look may find many queues without work for this worker
        every_s = min(self.polling.poll_s, often_s) if busy else self.polling.period_s
        look = now >= self.look_at(every_s)
        must_ask = self.polling.must_ask(now)
        if not (must_ask or look):
            return []
        if look:  # set before the statement, because a notification may ask for another look meanwhile
            self._looked_at = now
        found = await claimable_queues(
            conn, wanted, self.polling.asleep_s if must_ask else None, look=look, known=known, among=self.among,
            after=self._after,
        )  # fmt: skip
        if found.notified_for_s is not None:
            self.polling.asked(now, found.notified_for_s)
        if not look:
            return []
        self._known.learn(found.queues)
        # a look also reads dead entries of claimed runs, and runs that are not for this worker
        took_s = time.monotonic() - now
        self._budget.spent(took_s if found.queues else 2 * took_s, time.monotonic())
        self._after = found.after or ""
        if self._after:
            self.look_soon()
        return found.queues

    def found_nothing(self, tried_at: float) -> None:
        """Note that the queues of a look were tried from `tried_at` on without a claim."""
        now = time.monotonic()
        self._budget.spent(now - tried_at + self._budget.pause_s / SHARE, now)

    def ended(self, began: float) -> None:
        """Note the end of the part of a round that may contain a look; `began`: when this part began."""
        if self._looked_at >= began:
            self._round_s = time.monotonic() - began
