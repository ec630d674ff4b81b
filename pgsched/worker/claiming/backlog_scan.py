"""Where a scan of a queue from its start takes long, what the claim cursor has passed is claimed beside other claims.

The rule: over a connection of its own, that lives for one such claim; of one queue at a time, as they come; and for
half of the room, rounded up, which is kept for it. It has half a lease to scan: a claim is this worker's for a lease
from when it is sent, and its first renewal must come before that is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID, uuid4

from pgsched import log
from pgsched.core.model import Claim
from pgsched.db.connection.connect import BY_KEY, DatabaseError, aconnect
from pgsched.db.connection.failures import Reaction, classify, first_line
from pgsched.db.queries.runs.claims import Wanted, claim, plan_claims
from pgsched.errors import PgschedError
from pgsched.worker.claiming.cursor import Cursor
from pgsched.worker.claiming.recovery import Unconfirmed

logger = log.get("claim")
AT_MOST = 500
TIMEOUT_S = 60.0
END_S = 2.0


class Aside:
    """The claims of one worker beside its others. `room()`: how many may be claimed; `on_claims(claims, sent_at)` takes
    them; `again(queue)`: a claim of this queue may be worth while now; `freed()`: no room is kept for them any more."""

    def __init__(
        self,
        dsn: str,
        wanted: Callable[[], Wanted],
        room: Callable[[], int],
        on_claims: Callable[[list[Claim], float], None],
        unconfirmed: Unconfirmed,
        again: Callable[[str], None],
        freed: Callable[[], None],
    ) -> None:
        self.dsn = dsn
        self.wanted = wanted
        self.room = room
        self.on_claims = on_claims
        self.unconfirmed = unconfirmed
        self.again = again
        self.freed = freed
        self.asking = 0  # how many runs the claim is for that is on its way
        self._due: dict[str, Cursor] = {}
        self._queue: str | None = None
        self._task: asyncio.Task[None] | None = None

    def look(self, queue: str, cursor: Cursor) -> bool:
        """Claim what the cursor has passed if it is time; True when that begins later than this call. The room for it
        is kept from now on, so that no claim that is sent meanwhile is for the same. Raises what ended the last one, if
        that was no answer of the database: to take what was claimed must not fail."""
        self._raise()
        if queue == self._queue or not cursor.passed_is_due(time.monotonic()):
            return False
        if self._task is None:
            if not self._keep():
                return False
            self._task = asyncio.create_task(self._run())
        self._due[queue] = cursor
        return True

    def _keep(self) -> bool:
        """Keep half of the room; is there any?"""
        self.asking = max(0, min((self.room() + 1) // 2, AT_MOST))
        return self.asking > 0

    def _raise(self) -> None:
        """What ended the last one, once."""
        if self._task is not None and self._task.done():
            ended, self._task = self._task, None
            if not ended.cancelled():
                ended.result()

    async def close(self) -> None:
        """Give up what is under way."""
        self._due.clear()
        for _ in range(2):  # the first makes psycopg cancel the statement and wait for a server to answer
            if self._task is not None and not self._task.done():
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=END_S)
        try:
            self._raise()
        except Exception:  # the worker ends anyway, and has outcomes to write
            logger.exception("claims may be held until their leases end")

    async def _run(self) -> None:
        while self._due:
            queue = self._queue = next(iter(self._due))
            cursor = self._due.pop(queue)
            left = True
            try:
                if self.asking or self._keep():
                    left = await self._claim(queue, cursor, self.asking)
            finally:
                self._queue, self.asking = None, 0
                if left:
                    self.again(queue)
                self.freed()

    async def _claim(self, queue: str, cursor: Cursor, n: int) -> bool:
        """Claim up to `n` of what the cursor has passed; True when there is more to look at."""
        if (span := cursor.passed(time.monotonic())) is None:
            return False
        token, sent_at, answered_at, more = uuid4(), None, None, True
        claims: list[Claim] = []
        problem: Exception | None = None
        try:
            wanted = self.wanted()
            timeout_s = min(TIMEOUT_S, wanted.lease_s / 2)
            async with await aconnect(self.dsn, purpose="aside", timeout_s=timeout_s, settings=BY_KEY) as conn:
                await plan_claims(conn, wanted, [span])  # what that takes is not the scan's
                sent_at = time.monotonic()
                claims = await claim(conn, wanted, queue, n, token, span)
                answered_at = time.monotonic()
        except Exception as error:
            problem = error
        finally:  # also where it is cancelled, and while it disconnects
            if sent_at is not None and answered_at is not None:
                more = cursor.looked_aside(claims, n, sent_at, answered_at)
                if claims:
                    self.on_claims(claims, sent_at)
            else:
                self._not_looked(queue, cursor, token, sent_at, problem)
        return more

    def _not_looked(
        self, queue: str, cursor: Cursor, token: UUID, sent_at: float | None, problem: Exception | None
    ) -> None:
        """There was no answer; `sent_at`: None if it was not even asked."""
        now = time.monotonic()
        cursor.not_looked(0.0 if sent_at is None else now - sent_at, now)
        if sent_at is not None and (problem is None or classify(problem) is not Reaction.RETRY):
            self.unconfirmed.sent(token, queue, sent_at)  # otherwise the server says that it has taken nothing
        if problem is not None:
            unforeseen = not isinstance(problem, DatabaseError | PgschedError)
            logger.warning("what became claimable late was not looked for", queue=queue,
                           error=log.redact(first_line(problem)), exc_info=problem if unforeseen else None)  # fmt: skip
