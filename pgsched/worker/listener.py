"""LISTEN on one dedicated connection: hints that shorten waits. Nothing depends on them, and behind a pooler that lends
sessions for a transaction there are none.

Invariant: anybody who may connect may notify, anything and at any rate. A notification makes this worker look at the
database; nothing that it says is believed or kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import AsyncConnection, DatabaseError, aconnect
from pgsched.db.connection.failures import Reaction, back_off_s, classify, explain, first_line
from pgsched.db.connection.notifications import notices
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.errors import PgschedError

logger = log.get("listen")
AT_ONCE = 1000  # notifications read before the event loop goes on with something else


async def listen(dsn: str, on_queue: Callable[[str | None], None], on_cancel: Callable[[], None]) -> None:
    """Pass notifications on until cancelled: `on_queue(mark)`, a queue may have got work (db.queries.runs.claims.mark);
    `on_cancel()`, somebody may have asked to cancel a run. `on_queue(None)` when it cannot, and once it can again: any
    may have been missed."""

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
                raise explain(error) if isinstance(error, DatabaseError) else error from error
            failures += 1
            on_queue(None)  # nobody else's look finds this worker something, as it cannot be told of it
            delay = back_off_s(failures, 0.1)
            logger.warning("listening again", error=log.redact(first_line(error)), retry_in_s=round(delay, 2))
            await asyncio.sleep(delay)


async def pass_on(conn: AsyncConnection[Any], heard: Callable[[str, str], None]) -> None:
    """Call `heard(channel, payload)` as soon as a notification is there, with no task in between. Raises what ends the
    connection."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def read() -> None:
        if ended.done():
            return
        try:
            count = 0
            for channel, payload in islice(notices(conn), AT_ONCE):
                heard(channel, payload)
                count += 1
            if count == AT_ONCE:  # the socket will not tell of the rest, which libpq has read
                loop.call_soon(read)
        except Exception as error:
            loop.remove_reader(socket)
            ended.set_exception(error)

    socket = conn.fileno()
    loop.add_reader(socket, read)
    try:
        read()  # what libpq has read already: the socket will not tell of it
        await ended
    finally:
        if ended.cancelled():  # the socket of a connection that was lost is closed, and its number may be another's
            loop.remove_reader(socket)
