"""LISTEN on one dedicated connection: hints that shorten waits. Nothing depends on them, and behind a pooler that lends
sessions for a transaction there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pgsched import log
from pgsched.db.connect import DatabaseError, Reaction, aconnect, back_off_s, classify, explain, first_line
from pgsched.db.shared import is_shared
from pgsched.errors import PgschedError

logger = log.get("listen")


async def listen(dsn: str, on_queue: Callable[[str | None], None], on_cancel: Callable[[int], None]) -> None:
    """Pass notifications on until cancelled; after a reconnection, `on_queue(None)`: any may have been missed."""
    failures = 0
    while True:
        try:
            async with await aconnect(dsn, purpose="listen", timeout_s=0) as conn:
                if is_shared(conn):
                    return
                await conn.execute("LISTEN pgsched_runs")
                await conn.execute("LISTEN pgsched_cancel")
                failures = 0
                on_queue(None)
                async for notify in conn.notifies():
                    if notify.channel == "pgsched_runs":
                        on_queue(notify.payload or None)
                        await asyncio.sleep(0)  # the claim is sent first, then this waits for more
                    elif notify.payload.isdigit():
                        on_cancel(int(notify.payload))
        except (DatabaseError, PgschedError) as error:
            if classify(error) is Reaction.CONFIGURATION:
                raise explain(error) if isinstance(error, DatabaseError) else error from error
            failures += 1
            delay = back_off_s(failures, 0.1)
            logger.warning("listening again", error=log.redact(first_line(error)), retry_in_s=round(delay, 2))
            await asyncio.sleep(delay)
