"""The claims of one round: from each queue in turn while there is room; many quick queues share one statement.

Invariant: each run that a statement took is passed on. Where the answer is lost, the claim is asked for again
(recovery.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from pgsched.core.model import Claims
from pgsched.db.connection.bounded import hold
from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.queries.runs.claims import FROM_THE_START, WorkerOffer, claim, claim_many
from pgsched.worker.claiming.known_queues import KnownQueues
from pgsched.worker.claiming.recovery import Unconfirmed, lease_start
from pgsched.worker.claiming.rotation import Rotation, sorted_by_queue

LARGEST_BATCH = 4000
SINGLY_S = 60.0
HOLD_S = 0.002  # an idle worker blocks the event loop for this long; a slower claim is awaited as usual


class QueueClaims:
    """The claim statements of one claimer. Each result is reported to the rotation.

    - `on_claims(claims, sent_at)`: takes the claims.
    - `wake()`: called when it is time to ask for a lost answer.
    """

    def __init__(
        self,
        wanted: WorkerOffer,
        known: KnownQueues,
        rotation: Rotation,
        room: Callable[[], int],
        places: Callable[[], int],
        idle: Callable[[], bool],
        on_claims: Callable[[Claims, float], None],
        wake: Callable[[], object],
    ) -> None:
        self.wanted = wanted
        self.known = known
        self.on_claims = on_claims
        self.unconfirmed = Unconfirmed(on_claims, wake)
        self.retry_in_s = 0.0  # seconds until a queue may be tried again that had to wait in this round
        self._rotation = rotation
        self._room = room
        self._places = places
        self._idle = idle
        self._claiming: tuple[UUID, tuple[str, ...]] | None = None
        self._singly_until = 0.0

    def change(self, **values: Any) -> None:
        """Claim with other values of `WorkerOffer` from now on."""
        self.wanted = replace(self.wanted, **values)

    async def of_each(self, conn: AsyncConnection[Any], queues: list[str]) -> None:
        """Claim from each of these queues in turn, while there is room."""
        for candidates in self.known.groups(queues, singly=time.monotonic() < self._singly_until):
            group, n = self._rotation.allowed(candidates, min(self._room(), LARGEST_BATCH), self._places)
            if n <= 0:
                self._rotation.no_room(*group)
            elif len(group) > 1:
                await self._of_many(conn, group, n)
            elif group and await self._of_one(conn, group[0], n):
                self._rotation.full(group[0])

    def failed(self, *, took_nothing: bool) -> None:
        """Note that an error ended the round; `took_nothing`: the server says that the statement took nothing."""
        if together := self._claiming is not None and len(self._claiming[1]) > 1:  # one of the queues may be the cause
            self._singly_until = time.monotonic() + SINGLY_S
        self._rotation.failed(self._claiming[1][0] if self._claiming and not together else None)
        if self._claiming is not None and took_nothing:
            self.unconfirmed.settled(*self._claiming)
        self._claiming = None

    async def _of_many(self, conn: AsyncConnection[Any], queues: list[str], n: int) -> None:
        """Claim up to `n` runs of these queues in one statement, in the order of the queues."""
        token, sent_at, key = uuid4(), time.monotonic(), tuple(queues)
        self.unconfirmed.sent(token, key, sent_at)
        self._claiming, places = (token, key), self._places()
        claims = await claim_many(conn, self.wanted, queues, n, token, places)
        each_s = (time.monotonic() - sent_at) / len(queues)
        counted_at = await lease_start(conn, claims, sent_at, self.wanted.lease_s)
        self._claiming = None
        self.unconfirmed.settled(token, key)  # only now: no error can come between this and on_claims
        if claims:
            self.on_claims(claims, counted_at)
        by_queue = sorted_by_queue(claims)
        last = max((queues.index(queue) for queue in by_queue), default=-1)
        left = self._rotation.note_wanting(queues, max(last, 0), claims, places)
        for place, queue in enumerate(queues):
            if taken := by_queue.get(queue, []):
                self._rotation.took(queue, len(taken))
            # there was no room for more, or a suspect run was claimed alone
            if (len(claims) == n or (claims and claims[0].suspect)) and place >= last:
                self._rotation.full(queue) if place == last else self._rotation.no_room(queue)
            elif not left or place < last:
                self.known.cursor(queue).scanned(taken, n, sent_at, sent_at + each_s)

    async def _of_one(self, conn: AsyncConnection[Any], queue: str, n: int) -> bool:
        """Claim up to `n` runs of one queue; return True where there may be more.

        Where a scan from the cursor finds too few, a scan from the start follows as soon as it is affordable.
        """
        cursor, now = self.known.cursor(queue), time.monotonic()
        if (wait_s := cursor.wait_s(now)) > 0:
            return self._later(queue, wait_s)
        after = cursor.after(now)
        if await self._scan(conn, queue, n, after) == n:
            return True
        if after is FROM_THE_START:
            return False
        if (wait_s := cursor.full_in(time.monotonic())) > 0:
            return self._later(queue, wait_s)
        n = min(self._room(), LARGEST_BATCH)
        return n <= 0 or await self._scan(conn, queue, n, FROM_THE_START) == n

    def _later(self, queue: str, wait_s: float) -> bool:
        """Try the queue again in `wait_s` seconds; return False."""
        self._rotation.hint(queue)
        self.retry_in_s = min(self.retry_in_s, wait_s)
        return False

    async def _scan(self, conn: AsyncConnection[Any], queue: str, n: int, span: Mapping[str, str]) -> int:
        """Send one claim statement; return how many runs it took."""
        token, sent_at = uuid4(), time.monotonic()
        self.unconfirmed.sent(token, (queue,), sent_at)
        self._claiming = token, (queue,)
        idle, places = self._idle(), self._places()
        hold(conn, HOLD_S if idle else 0.0)
        try:
            claims = await claim(conn, self.wanted, queue, n, token, span, places)
        except BaseException:
            if span is FROM_THE_START:
                self.known.cursor(queue).not_scanned(sent_at, time.monotonic())
            raise
        finally:
            hold(conn, 0.0)
        now = time.monotonic()
        counted_at = await lease_start(conn, claims, sent_at, self.wanted.lease_s)
        self._claiming = None
        self.unconfirmed.settled(token, (queue,))  # only now: no error can come between this and on_claims
        if claims:
            self._rotation.took(queue, len(claims))
            self.on_claims(claims, counted_at)
        self._rotation.note_wanting([queue], 0, claims, places)
        if idle:
            await asyncio.sleep(0)  # let the claimed runs begin before anything else
        cursor = self.known.cursor(queue)
        if span is FROM_THE_START:
            # a suspect run is claimed alone, so more runs may follow it
            cursor.scanned(claims, len(claims) if claims and claims[0].suspect else n, sent_at, now)
        else:
            cursor.went_on(claims, sent_at, now)
        return len(claims)
