"""The methods of an App for coordination: locks, semaphores, elections and item queues."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pgsched.app.base import AppBase

if TYPE_CHECKING:
    from pgsched.recipes.election import Election
    from pgsched.recipes.item_queue import ItemQueue
    from pgsched.recipes.keeper import Keeper
    from pgsched.recipes.lock import Lock
    from pgsched.recipes.values import Seconds

_lock = threading.RLock()


class Coordination(AppBase):
    """The part of App by which programs coordinate. What it returns opens a session when it is first used.

    `ttl`: how long others wait for a process that has died or is cut off; seconds, a timedelta or a text. All that has
    the same ttl hangs on one session, which is renewed three times in a ttl. `timeout`: how long `with` and `acquire`
    wait; None: without limit. `note`: what others read of it in `line()`, up to 64 KiB.
    """

    _own_keeper: Keeper | None = None

    def lock(self, name: str, *, ttl: Seconds = 30, timeout: Seconds | None = None, note: str | None = None) -> Lock:
        """Return a lock, which one process holds at a time. `name`: up to 200 characters."""
        from pgsched.recipes.lock import Lock

        return Lock(self._keeper, name, ttl=ttl, timeout=timeout, note=note)

    def read_lock(
        self, name: str, *, ttl: Seconds = 30, timeout: Seconds | None = None, note: str | None = None
    ) -> Lock:
        """Return a read lock, which several hold at a time, but none while another holds the write lock."""
        from pgsched.recipes.lock import Lock

        return Lock(self._keeper, name, ttl=ttl, timeout=timeout, note=note, mode="shared")

    def write_lock(
        self, name: str, *, ttl: Seconds = 30, timeout: Seconds | None = None, note: str | None = None
    ) -> Lock:
        """Return a write lock: the same as `lock`. Who asks for a read lock after it waits until it was given back."""
        return self.lock(name, ttl=ttl, timeout=timeout, note=note)

    def semaphore(
        self, name: str, limit: int, *, ttl: Seconds = 30, timeout: Seconds | None = None, note: str | None = None
    ) -> Lock:
        """Return a semaphore, which up to `limit` hold at a time. While it is in use, all give the same limit."""
        from pgsched.recipes.lock import Lock

        return Lock(self._keeper, name, ttl=ttl, timeout=timeout, note=note, capacity=limit)

    def election(
        self, name: str, *, ttl: Seconds = 30, timeout: Seconds | None = None, note: str | None = None
    ) -> Election:
        """Return an election, in which one process at a time leads."""
        from pgsched.recipes.election import Election

        return Election(self._keeper, name, ttl=ttl, timeout=timeout, note=note)

    def item_queue(
        self,
        name: str,
        *,
        hold: Seconds = 30,
        timeout: Seconds | None = None,
        max_attempts: int = 0,
        retry_delay: Seconds = 0,
    ) -> ItemQueue:
        """Return an item queue. `hold`: how long an item stays held by a process that has died or is cut off.

        `max_attempts`: an item that comes back when it was handed out so often becomes a dead run; 0: it never does.
        `retry_delay`: how long an item is kept back whose `with` block has failed. Both hold for what is got.
        """
        from pgsched.recipes.item_queue import ItemQueue

        return ItemQueue(
            self._keeper, name, hold=hold, timeout=timeout, max_attempts=max_attempts, retry_delay=retry_delay
        )

    def close(self) -> None:
        """Close the connections as `AppBase.close` does; give back all locks of this App before."""
        self._close_keeper()
        super().close()

    async def close_async(self) -> None:
        """Close the same as `close`."""
        from pgsched.threads import run_in_thread

        if self._own_keeper is not None:
            await run_in_thread(self._close_keeper)
        await super().close_async()

    @property
    def _keeper(self) -> Keeper:
        from pgsched.recipes.keeper import Keeper

        with _lock:
            if self._own_keeper is None:
                self._own_keeper = Keeper(self.database)
            return self._own_keeper

    def _close_keeper(self) -> None:
        if self._own_keeper is not None:
            self._own_keeper.close()
