"""The listener: receives notifications on its own connection, as hints that shorten waits.

Invariant: any role that may connect may send any notification at any rate. A notification makes this worker look at the
database; nothing that it says is believed or stored.

Nothing depends on notifications. Behind a pooler that lends sessions for a transaction there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import AsyncConnection, DatabaseError, aconnect
from pgsched.db.connection.failures import Reaction, back_off_s, classify, explain_error, first_line
from pgsched.db.connection.notifications import arrived_notifications
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.errors import PgschedError

logger = log.get("listen")
AT_ONCE = 1000  # notifications read before the event loop does other work


async def listen(dsn: str, on_queue: Callable[[str | None], None], on_cancel: Callable[[], None]) -> None:
    """Pass notifications on until cancelled. Raises PgschedError where no retry can help.

    - `on_queue(mark)`: a queue may have got work (db.queries.runs.claims.mark). `on_queue(None)`: notifications may
      have been missed; called when listening has failed, and when it works again.
    - `on_cancel()`: a run may have to be cancelled.
    """

    def heard(channel: str, payload: str) -> None:
        if channel == "pgsched_runs":
            on_queue(payload)
        else:
            on_cancel()

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
                await pass_on(conn, heard)
        except (DatabaseError, PgschedError) as error:
            if classify(error) is Reaction.CONFIGURATION:
                raise explain_error(error) if isinstance(error, DatabaseError) else error from error
            failures += 1
            on_queue(None)  # no notification can reach this worker now, so it has to look for work itself
            delay = back_off_s(failures, 0.1)
            logger.warning("listening again", error=log.redact(first_line(error)), retry_in_s=round(delay, 2))
            await asyncio.sleep(delay)


async def pass_on(conn: AsyncConnection[Any], heard: Callable[[str, str], None]) -> None:
    """Call `heard(channel, payload)` for each notification at once, without a task in between.

    Raises the error that ends the connection.
    """
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def read() -> None:
        if ended.done():
            return
        try:
            count = 0
            for channel, payload in islice(arrived_notifications(conn), AT_ONCE):
                heard(channel, payload)
                count += 1
            if count == AT_ONCE:  # libpq has read the rest, so the socket stays silent about it
                loop.call_soon(read)
        except Exception as error:
            loop.remove_reader(socket)
            ended.set_exception(error)

    socket = conn.fileno()
    loop.add_reader(socket, read)
    try:
        read()  # notifications that libpq has read already: the socket stays silent about them
        await ended
    finally:
        if ended.cancelled():  # the socket of a lost connection is closed, and its number may be in use again
            loop.remove_reader(socket)
