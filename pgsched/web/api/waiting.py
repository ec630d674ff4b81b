"""Requests that wait for the end of a run (`GET /runs/{id}?wait=30`).

Invariant: a request that waits holds neither a thread nor a connection of the console's pool. One thread with one
connection watches the runs of all. The place of a client that goes away is free at once, and the end of the server
ends all waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive

from pgsched.db.run_waiter import RunWaiter
from pgsched.web.api.errors import TooManyWaiting

MOST_WAITING = 200
LONGEST_S = 60


class WaitingRequests:
    """The requests that wait for runs of one database, at most MOST_WAITING.

    `count`: how many there are.
    `ending`: is set when the server ends.
    """

    def __init__(self, dsn: str, ending: asyncio.Event) -> None:
        self._waiter = RunWaiter(lambda: dsn)
        self._ending = ending
        self.count = 0

    async def wait_for(self, run_id: int, seconds: float, receive: Receive) -> bool:
        """Wait until the run has ended, for at most `seconds`; return False if the client has gone away.

        Returns at once for a run that has ended or does not exist.
        Raises TooManyWaiting, and PgschedError where the database cannot be asked.
        """
        if self.count >= MOST_WAITING:
            raise TooManyWaiting(f"{MOST_WAITING} requests wait for runs already: ask again soon, or without wait")
        self.count += 1
        try:
            ended = start_task(self._waiter.wait_async([run_id], seconds))
            gone, stopped = start_task(until_gone(receive)), start_task(self._ending.wait())
            try:
                await asyncio.wait({ended, gone, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    ended.result()
                return not gone.done()
            finally:
                await cancel_all(ended, gone, stopped)
        finally:
            self.count -= 1

    def close(self) -> None:
        """End the thread and its connection."""
        self._waiter.close()


def start_task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a coroutine beside this one."""
    return asyncio.get_running_loop().create_task(work)


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel these tasks and wait for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
