"""Claims come in batches as large as the free places, plus a prefetch that adapts to how fast the work is.

The prefetch is never more than what the worker finishes in about 100 ms, and nothing for slow work, so that no run is
parked behind a slow one while another worker is free. NOTIFY only shortens the wait: polling alone suffices.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from pgsched import log
from pgsched.core.model import Claims
from pgsched.db.connection.bounded import hold
from pgsched.db.connection.connect import BY_KEY, AsyncConnection, DatabaseError, aconnect
from pgsched.db.connection.failures import UNFORESEEN, Reaction, back_off_s, classify, explain, first_line
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.runs.claims import FROM_THE_START, Wanted, claim, claim_many, claimable_queues, plan_claims
from pgsched.errors import PgschedError
from pgsched.worker.claiming.cursor import SHARE, Budget
from pgsched.worker.claiming.hearing import Hearing
from pgsched.worker.claiming.known_queues import KnownQueues
from pgsched.worker.claiming.polling import NAP_S, Polling, Rest
from pgsched.worker.claiming.recovery import Unconfirmed, counted_from
from pgsched.worker.claiming.rotation import Rotation, sorted_by_queue

logger = log.get("claim")
LARGEST_BATCH = 4000
LAST_QUESTION_S, NAPPING_LOOK_S, SINGLY_S = 5.0, 0.05, 60.0
HOLD_S = 0.002  # a claim that takes longer waits in the event loop


class Claimer:
    """Claims as long as there is room; `on_claims(claims, sent_at)` takes them. `idle()`: no attempt is being made.
    `places()`: how many of the claims for which there is room may be such as begin at once."""

    def __init__(
        self,
        dsn: str,
        wanted: Wanted,
        queues: tuple[str, ...],
        poll_s: float,
        room: Callable[[], int],
        on_claims: Callable[[Claims, float], None],
        idle: Callable[[], bool] = bool,
        places: Callable[[], int] | None = None,
    ) -> None:
        self.dsn = dsn
        self.wanted = wanted
        self.queues = queues
        self.poll_s = poll_s
        self.room = room
        self.on_claims = on_claims
        self.idle = idle
        self.places = places or room
        self.woken = asyncio.Event()  # it is to look again at once, however long it meant to wait
        self._conn: AsyncConnection[Any] | None = None
        self._unconfirmed = Unconfirmed(on_claims, self.woken.set)
        self._claiming: tuple[UUID, tuple[str, ...]] | None = None
        self._after = ""  # behind this name the next look goes on
        self._singly_until = 0.0
        self._discovered_at = -math.inf
        self.starved = False  # did the last round leave something for want of room?
        self._looking = Budget()
        self._stopped = False
        self._known = KnownQueues(queues)
        self._hearing = Hearing(self.woken.set)
        self._rotation = Rotation()
        self._again_s, self._looking_s = poll_s, 0.0  # the latter: the last look for queues, with the claims after it
        self._rest = Rest(poll_s)
        self._unforeseen = 0  # errors since the last round that went well

    def known_as(self, worker_id: int) -> None:
        """Claim under this number from now on."""
        self.wanted = replace(self.wanted, worker_id=worker_id)

    def wake(self) -> None:
        """There is room again, or a free place: look again now, if something was left for want of it."""
        if self._rotation.hint_wanting() or self.starved:
            self.woken.set()

    def hint(self, queue: str | None) -> None:
        """Look again now: a queue got work (None: any may have)."""
        if queue is None:
            self._look_everywhere()
        else:
            self._rotation.hint(queue)
        self.woken.set()

    def heard(self, mark: str | None) -> None:
        """A notification: a queue with this mark may have work (None: any may have been missed). Anybody may send any,
        so it makes the claimer look, at known queues or for queues with work, and no more often than is affordable."""
        if mark is None:
            self.hint(None)
        elif (queue := self._known.of(mark)) is not None:
            self._rotation.hint(queue)
            self._hearing.wake(self._hearing.next_at)
        elif not (self.queues and mark):  # empty: of any queue
            self._discovered_at = -math.inf
            self._hearing.wake(max(self._hearing.next_at, self._looking.next_at))

    def stop(self) -> None:
        """Claim no more: `run` ends with the statement in progress."""
        self._stopped = True
        self.woken.set()

    @property
    def wants_place(self) -> bool:
        """May something have been left for want of a free place?"""
        return bool(self._rotation.wanting)

    async def run(self) -> None:
        """Claim until stopped. Raises PgschedError when no retry can help."""
        failures = 0
        while not self._stopped:
            try:
                more = await self.run_once()
                failures = self._unforeseen = 0
            except (DatabaseError, PgschedError) as error:
                failures += 1
                await self._recover(error, failures)
                continue
            if not more:
                await self._sleep()

    async def close(self) -> None:
        """Disconnect once `run` has ended. What a claim without an answer took is taken over first, to be handed back:
        nobody else would know of it until its lease ends."""
        self._hearing.close()
        try:
            async with asyncio.timeout(LAST_QUESTION_S):
                await self._disconnect()
                if self._unconfirmed:
                    async with await aconnect(self.dsn, purpose="claim") as conn:
                        await self._unconfirmed.ask(conn, math.inf, self.wanted.lease_s)
        except (DatabaseError, PgschedError, TimeoutError) as error:
            logger.warning("claims may be held until their leases end", error=log.redact(first_line(error)))

    async def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    def _look_everywhere(self) -> None:
        """A notification may have been missed, and the server may not know any more that this worker sleeps."""
        self._discovered_at = -math.inf
        self._rest.forget()

    async def _sleep(self) -> None:
        """Until woken, or it is time to look again."""
        full = self.room() <= 0
        self.starved = self.starved or full  # room may have become less since it was asked
        now = time.monotonic()
        # to be woken for one queue puts off no further the look at all of them
        turn_s = self.look_at(self._rest.period_s) - now
        rest_s = self._rest.wait_s(now, self._looking.next_at)
        wait_s = self.poll_s if full else max(0.0, min(self._again_s, rest_s, turn_s))
        try:
            async with asyncio.timeout(wait_s * (1 - self._rest.jitter(wait_s) * random.random())):
                await self.woken.wait()
        except TimeoutError:
            if wait_s > NAP_S:
                self._discovered_at = -math.inf
            if not full and time.monotonic() >= self._looking.next_at:
                self._rest.waited()
        self.woken.clear()

    async def run_once(self) -> bool:
        """Try every queue that may have work once; True when a full batch says that there is more."""
        self._again_s = self._rest.period_s
        self.starved = self.room() <= 0
        if self.starved and not self._unconfirmed:
            return False
        if self._conn is None:
            self._conn = await aconnect(self.dsn, purpose="claim", settings=BY_KEY)
            self._rest = Polling(self.poll_s) if is_shared(self._conn) else self._rest
            await plan_claims(self._conn, self.wanted)  # last: where it fails the connection may stay
        await self._unconfirmed.ask(self._conn, time.monotonic(), self.wanted.lease_s)
        if self.starved:
            return False
        rotation, hinted_at = self._rotation, time.monotonic()
        was_hinted = rotation.has_hints
        await self._try(self._conn, rotation.begin())
        self._rest.found(known := rotation.count, now := time.monotonic())
        if was_hinted:
            self._hearing.looked(found=known > 0, took_s=now - hinted_at, now=now)
        # questions come after what is hinted: it does not wait for them, nor do they if it never runs dry
        began, idle = time.monotonic(), self._rest.idle
        napping = not (idle or rotation.has_left_something)
        found = await self._discover(self._conn, rotation.known(idle), napping=napping)
        if others := rotation.others(found):
            tried_at = time.monotonic()
            await self._try(self._conn, others)
            if rotation.count == known and found:
                self._looking.spent(time.monotonic() - tried_at + self._looking.pause_s / SHARE, time.monotonic())
            if rotation.count > known:
                self._rest.found(rotation.count - known, time.monotonic())
        if self._discovered_at >= began:
            self._looking_s = time.monotonic() - began
        rotation.end(self._rest.idle)
        self.starved = rotation.has_left_something
        return self.starved and self.room() > 0

    async def _try(self, conn: AsyncConnection[Any], queues: list[str]) -> None:
        """Claim of each queue in turn, as long as there is room; of many that are quick to scan in one statement."""
        for tried in self._known.groups(queues, singly=time.monotonic() < self._singly_until):
            group, n = self._rotation.allowed(tried, min(self.room(), LARGEST_BATCH), self.places)
            if n <= 0:
                self._rotation.no_room(*group)
            elif len(group) > 1:
                await self._claim_many(conn, group, n)
            elif group and await self._claim(conn, group[0], n):
                self._rotation.full(group[0])

    async def _claim_many(self, conn: AsyncConnection[Any], queues: list[str], n: int) -> None:
        """Claim up to `n` runs of these queues, of the first ones first."""
        token, sent_at, key = uuid4(), time.monotonic(), tuple(queues)
        self._unconfirmed.sent(token, key, sent_at)
        self._claiming, places = (token, key), self.places()
        claims = await claim_many(conn, self.wanted, queues, n, token, places)
        each_s = (time.monotonic() - sent_at) / len(queues)
        counted_at = await counted_from(conn, claims, sent_at, self.wanted.lease_s)
        self._claiming = None
        self._unconfirmed.settled(token, key)  # not before nothing can come between
        if claims:
            self.on_claims(claims, counted_at)
        by_queue = sorted_by_queue(claims)
        last = max((queues.index(queue) for queue in by_queue), default=-1)
        left = self._rotation.note_wanting(queues, max(last, 0), claims, places)
        for place, queue in enumerate(queues):
            if taken := by_queue.get(queue, []):
                self._rotation.took(queue, len(taken))
            # there was no room for more, or one that is suspect was taken alone
            if (len(claims) == n or (claims and claims[0].suspect)) and place >= last:
                self._rotation.full(queue) if place == last else self._rotation.no_room(queue)
            elif not left or place < last:
                self._known.cursor(queue).scanned(taken, n, sent_at, sent_at + each_s)

    async def _claim(self, conn: AsyncConnection[Any], queue: str, n: int) -> bool:
        """Claim up to `n` runs of one queue; True when there may be more. Too few from the cursor on: a scan from the
        start follows as soon as that is affordable."""
        cursor, now = self._known.cursor(queue), time.monotonic()
        if (wait_s := cursor.wait_s(now)) > 0:
            return self._later(queue, wait_s)
        after = cursor.after(now)
        if await self._scan(conn, queue, n, after) == n:
            return True
        if after is FROM_THE_START:
            return False
        if (wait_s := cursor.full_in(time.monotonic())) > 0:
            return self._later(queue, wait_s)
        n = min(self.room(), LARGEST_BATCH)
        return n <= 0 or await self._scan(conn, queue, n, FROM_THE_START) == n

    def _later(self, queue: str, wait_s: float) -> bool:
        """Look at the queue in so many seconds, not now."""
        self._rotation.hint(queue)
        self._again_s = min(self._again_s, wait_s)
        return False

    async def _scan(self, conn: AsyncConnection[Any], queue: str, n: int, span: Mapping[str, str]) -> int:
        """One claim statement; how many runs it took."""
        token, sent_at = uuid4(), time.monotonic()
        self._unconfirmed.sent(token, (queue,), sent_at)
        self._claiming = token, (queue,)
        idle, places = self.idle(), self.places()
        hold(conn, HOLD_S if idle else 0.0)
        try:
            claims = await claim(conn, self.wanted, queue, n, token, span, places)
        except BaseException:
            if span is FROM_THE_START:
                self._known.cursor(queue).not_scanned(sent_at, time.monotonic())
            raise
        finally:
            hold(conn, 0.0)
        now = time.monotonic()
        counted_at = await counted_from(conn, claims, sent_at, self.wanted.lease_s)
        self._claiming = None
        self._unconfirmed.settled(token, (queue,))  # not before nothing can come between
        if claims:
            self._rotation.took(queue, len(claims))
            self.on_claims(claims, counted_at)
        self._rotation.note_wanting([queue], 0, claims, places)
        if idle:
            await asyncio.sleep(0)  # what was claimed begins before anything else is done, and others have their turn
        cursor = self._known.cursor(queue)
        if span is FROM_THE_START:
            # one that is suspect was taken alone, and others may follow where it was
            cursor.scanned(claims, len(claims) if claims and claims[0].suspect else n, sent_at, now)
        else:
            cursor.went_on(claims, sent_at, now)
        return len(claims)

    def look_at(self, every_s: float) -> float:
        """When to look for queues again: so long after the last look, and not before that is affordable."""
        return max(self._discovered_at + every_s, self._looking.next_at)

    async def _discover(self, conn: AsyncConnection[Any], known: set[str], *, napping: bool) -> list[str]:
        """Say that this worker may sleep, if it is to. At least once a period, because a hint may have been lost,
        and more often for one that naps, because none is sent: the queues that have open runs, but for those
        `known`."""
        now = time.monotonic()
        often_s = max(NAPPING_LOOK_S, SHARE * self._looking_s)  # many queues may have nothing for this worker
        every_s = min(self.poll_s, often_s) if napping else self._rest.period_s
        look = now >= self.look_at(every_s)
        must_ask = self._rest.must_ask(now)
        if not (must_ask or look):
            return []
        if look:  # said before, because it may be told meanwhile to look once more
            self._discovered_at = now
        found = await claimable_queues(
            conn, self.wanted, self._rest.asleep_s if must_ask else None, look=look, known=known, among=self.queues,
            after=self._after,
        )  # fmt: skip
        if found.sure_s is not None:
            self._rest.asked(now, found.sure_s)
        if not look:
            return []
        self._known.learn(found.queues)
        # the dead entries of what was claimed are in its way too, and the runs of many queues that are not for it
        took_s = time.monotonic() - now
        self._looking.spent(took_s if found.queues else 2 * took_s, time.monotonic())
        self._after = found.after or ""
        if self._after:
            self._discovered_at = -math.inf
        return found.queues

    async def _recover(self, error: DatabaseError | PgschedError, failures: int) -> None:
        reaction = classify(error)
        self._unforeseen += reaction is Reaction.BUG
        if reaction in (Reaction.CONFIGURATION, Reaction.VALUE) or self._unforeseen > UNFORESEEN:
            raise explain(error) if isinstance(error, DatabaseError) else error from error
        delay = back_off_s(failures, 0.05)
        logger.warning("claiming again", error=log.redact(first_line(error)), retry_in_s=round(delay, 2))
        if reaction is not Reaction.RETRY:
            await self._disconnect()
        self._look_everywhere()
        if together := self._claiming is not None and len(self._claiming[1]) > 1:  # one may be in the way of the others
            self._singly_until = time.monotonic() + SINGLY_S
        self._rotation.failed(self._claiming[1][0] if self._claiming and not together else None)
        if self._claiming is not None and reaction is Reaction.RETRY:  # the server says that it has taken nothing
            self._unconfirmed.settled(*self._claiming)
        self._claiming = None
        await asyncio.sleep(delay)
