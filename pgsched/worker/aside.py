"""Where a scan of a queue from its start takes long, what the claim cursor has passed is looked for beside the claims.

The rule: it is asked over a connection of its own, which lives for that question (one in 2 to 15 seconds, and only
while something pins xmin or very many runs are somebody else's), about one queue at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from pgsched import log
from pgsched.db.claims import Wanted, claimable_passed
from pgsched.db.connect import BY_KEY, DatabaseError, aconnect, first_line
from pgsched.errors import PgschedError
from pgsched.worker.cursor import Cursor

logger = log.get("claim")


class Aside:
    """The looks beside one worker's claims. `again(queue)`: a claim of this queue is worth while now."""

    def __init__(self, dsn: str, again: Callable[[str], None]) -> None:
        self.dsn = dsn
        self.again = again
        self.queue: str | None = None  # which one is being looked at
        self._task: asyncio.Task[None] | None = None

    def look(self, queue: str, cursor: Cursor, wanted: Wanted) -> None:
        """Begin a look if it is time for one, and none is under way."""
        if self.queue is None and (until := cursor.passed(time.monotonic())):
            self.queue = queue
            self._task = asyncio.create_task(self._look(queue, cursor, wanted, dict(until)))

    async def _look(self, queue: str, cursor: Cursor, wanted: Wanted, until: dict[str, str]) -> None:
        found = None
        try:
            async with await aconnect(self.dsn, purpose="aside", settings=BY_KEY) as conn:
                sent_at = time.monotonic()
                found = await claimable_passed(conn, wanted, queue, until)
                cursor.looked_aside(found, sent_at, time.monotonic())
        except (DatabaseError, PgschedError) as error:
            logger.warning("claiming from the start of the queue", error=log.redact(first_line(error)))
        finally:
            self.queue = None
            if found is None:
                cursor.not_looked()
        if found is None or found:
            self.again(queue)

    async def close(self) -> None:
        """Give up a look that is under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
