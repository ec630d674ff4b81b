"""The claimer: the loop that claims runs for one worker, in batches.

A batch is as large as the free places, plus a prefetch that adapts to how fast the work is. The prefetch is at most
what the worker finishes in about 100 ms, and 0 for slow work. So no run is parked behind a slow one while another
worker is free. NOTIFY only shortens the wait: polling alone is enough.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from typing import Any

from pgsched import log
from pgsched.core.model import Claims
from pgsched.db.connection.connect import BY_KEY, AsyncConnection, DatabaseError, aconnect
from pgsched.db.connection.failures import UNFORESEEN, Reaction, back_off_s, classify, explain_error, first_line
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.runs.claims import WorkerOffer, plan_claims
from pgsched.errors import PgschedError
from pgsched.worker.claiming.discovery import Discovery
from pgsched.worker.claiming.hearing import NotificationWake
from pgsched.worker.claiming.known_queues import KnownQueues
from pgsched.worker.claiming.queue_claims import QueueClaims
from pgsched.worker.claiming.rotation import Rotation

logger = log.get("claim")
LAST_QUESTION_S = 5.0


class Claimer:
    """The claim loop of one worker: claims runs while there is room.

    - `room()`: how many more claims are wanted.
    - `on_claims(claims, sent_at)`: takes the claims.
    - `idle()`: no attempt is being made.
    - `places()`: how many of the claims may count as begun once they are claimed.
    """

    def __init__(
        self,
        dsn: str,
        wanted: WorkerOffer,
        queues: tuple[str, ...],
        poll_s: float,
        room: Callable[[], int],
        on_claims: Callable[[Claims, float], None],
        idle: Callable[[], bool] = bool,
        places: Callable[[], int] | None = None,
    ) -> None:
        self.dsn = dsn
        self.room = room
        self.woken = asyncio.Event()  # set: look again at once, and end the current wait
        self.starved = False  # the last round left runs because there was no room
        self._stopped = False
        self._conn: AsyncConnection[Any] | None = None
        self._rotation = Rotation()
        known = KnownQueues(queues)
        self.claims = QueueClaims(wanted, known, self._rotation, room, places or room, idle, on_claims, self.woken.set)
        self._discovery = Discovery(queues, known, poll_s)
        self._hearing = NotificationWake(self.woken.set)
        self._unforeseen = 0  # unforeseen errors since the last successful round

    def known_as(self, worker_id: int) -> None:
        """Claim under this worker's number from now on."""
        self.claims.change(worker_id=worker_id)

    def change_tasks(self, less: set[str], more: set[str]) -> None:
        """Stop claiming runs of the tasks `less`, and start with those of `more`."""
        self.claims.change(tasks=sorted({*self.claims.wanted.tasks} - less | more))
        if more:
            self.hint(None)

    # ---- what makes it look again

    def wake(self) -> None:
        """Look again now if runs were left for lack of room or of a free place, because there may be one now."""
        if self._rotation.hint_wanting() or self.starved:
            self.woken.set()

    def hint(self, queue: str | None) -> None:
        """Look again now: this queue got work, or any queue may have (None)."""
        if queue is None:
            self._discovery.forget()
        else:
            self._rotation.hint(queue)
        self.woken.set()

    def heard(self, mark: str | None) -> None:
        """Act on a notification: a queue with this mark may have work; None: notifications may have been missed.

        Any role can send any notification. So it only makes the claimer look, at known queues or for queues with work,
        and no more often than is affordable.
        """
        if mark is None:
            self.hint(None)
        elif (queue := self.claims.known.of(mark)) is not None:
            self._rotation.hint(queue)
            self._hearing.wake(self._hearing.next_at)
        elif not (self._discovery.among and mark):  # the empty mark stands for any queue
            self._discovery.heard_unknown()
            self._hearing.wake(self._hearing.next_at)

    @property
    def wants_place(self) -> bool:
        """Whether runs may have been left because no place was free."""
        return bool(self._rotation.wanting_place)

    # ---- the loop

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

    async def run_once(self) -> bool:
        """Try once every queue that may have work; return True where a full batch shows that there is more."""
        claims, rotation = self.claims, self._rotation
        claims.retry_in_s = self._discovery.polling.period_s
        self.starved = self.room() <= 0
        if self.starved and not claims.unconfirmed:
            return False
        conn = self._conn or await self._connected()
        await claims.unconfirmed.ask(conn, time.monotonic(), claims.wanted.lease_s)
        if self.starved:
            return False
        await self._try_hinted(conn)
        # looks come after hinted queues: these need not wait for a look, and a look comes even if they never run dry
        await self._try_found(conn)
        rotation.end(self._discovery.polling.idle)
        self.starved = rotation.has_left_something
        return self.starved and self.room() > 0

    async def _connected(self) -> AsyncConnection[Any]:
        conn = self._conn = await aconnect(self.dsn, purpose="claim", settings=BY_KEY)
        if is_shared(conn):
            self._discovery.reach_by_polling()
        await plan_claims(conn, self.claims.wanted)  # last, because the connection is usable even where planning fails
        return conn

    async def _try_hinted(self, conn: AsyncConnection[Any]) -> None:
        """Claim from the queues that got work, and from those that had some lately."""
        rotation, began = self._rotation, time.monotonic()
        newest = await self._discovery.newest(conn, self.claims.wanted)
        rotation.hint(*newest or ())
        was_hinted = newest is not None or rotation.has_hints
        await self.claims.of_each(conn, rotation.begin())
        found, now = rotation.count, time.monotonic()
        self._discovery.polling.found(found, now)
        if was_hinted:
            self._hearing.looked(found=found > 0, took_s=now - began, now=now)

    async def _try_found(self, conn: AsyncConnection[Any]) -> None:
        """Claim from the queues that a look finds, if one is due, and from the queue whose claim failed."""
        rotation, discovery = self._rotation, self._discovery
        began, before, idle = time.monotonic(), rotation.count, discovery.polling.idle
        busy = not (idle or rotation.has_left_something)
        found = await discovery.look(conn, self.claims.wanted, rotation.known(idle), busy=busy)
        if others := rotation.others(found):
            tried_at = time.monotonic()
            await self.claims.of_each(conn, others)
            if rotation.count > before:
                discovery.polling.found(rotation.count - before, time.monotonic())
            elif found:
                discovery.found_nothing(tried_at)
        discovery.ended(began)

    async def _sleep(self) -> None:
        """Wait until woken, or until it is time to look again."""
        full = self.room() <= 0
        self.starved = self.starved or full  # there may be less room than at the start of the round
        polling = self._discovery.polling
        soon_s = min(self.claims.retry_in_s, self._discovery.wait_s(time.monotonic()))
        wait_s = polling.poll_s if full else max(0.0, soon_s)
        try:
            async with asyncio.timeout(wait_s * (1 - polling.jitter(wait_s) * random.random())):
                await self.woken.wait()
        except TimeoutError:
            self._discovery.waited(wait_s, full=full)
        self.woken.clear()

    async def _recover(self, error: DatabaseError | PgschedError, failures: int) -> None:
        reaction = classify(error)
        self._unforeseen += reaction is Reaction.BUG
        if reaction in (Reaction.CONFIGURATION, Reaction.VALUE) or self._unforeseen > UNFORESEEN:
            raise explain_error(error) if isinstance(error, DatabaseError) else error from error
        delay = back_off_s(failures, 0.05)
        logger.warning("claiming again", error=log.redact(first_line(error)), retry_in_s=round(delay, 2))
        if reaction is not Reaction.RETRY:
            await self._disconnect()
        self._discovery.forget()
        self.claims.failed(took_nothing=reaction is Reaction.RETRY)
        await asyncio.sleep(delay)

    # ---- the end

    def stop(self) -> None:
        """Claim no more: `run` ends after the statement in progress."""
        self._stopped = True
        self.woken.set()

    async def close(self) -> None:
        """Disconnect once `run` has ended.

        Claims whose answer was lost are taken over first, to be handed back. Otherwise they would stay claimed until
        their leases end.
        """
        self._hearing.close()
        try:
            async with asyncio.timeout(LAST_QUESTION_S):
                await self._disconnect()
                if self.claims.unconfirmed:
                    async with await aconnect(self.dsn, purpose="claim") as conn:
                        await self.claims.unconfirmed.ask(conn, math.inf, self.claims.wanted.lease_s)
        except (DatabaseError, PgschedError, TimeoutError) as error:
            logger.warning("claims may be held until their leases end", error=log.redact(first_line(error)))

    async def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()
