"""The methods of an App for coordination: locks, elections, item queues, and what programs share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pgsched.app.base import AppBase

if TYPE_CHECKING:
    from pgsched.recipes.barrier import Barrier
    from pgsched.recipes.double_barrier import DoubleBarrier
    from pgsched.recipes.election import Election
    from pgsched.recipes.items.item_queue import ItemQueue
    from pgsched.recipes.lock import Lock
    from pgsched.recipes.party import Party
    from pgsched.recipes.sessions.keeper import Keeper
    from pgsched.recipes.shared_values import Counter, Value
    from pgsched.recipes.store import Store
    from pgsched.recipes.values import Seconds
    from pgsched.recipes.watch import Watch
    from pgsched.recipes.watches import Watches

_lock = threading.RLock()


class Coordination(AppBase):
    """The part of App by which programs coordinate.

    Locks, parties, bound keys and held items open a session at their first use.

    `ttl`: how long others wait for a process that has died or is cut off; seconds, a timedelta or a text. All that has
    the same ttl hangs on one session, which is renewed three times in a ttl. `timeout`: how long `with` and `acquire`
    wait; None: without limit. `note`: what others read of it in `line()`, up to 64 KiB.
    """

    _own_keeper: Keeper | None = None
    _own_watches: Watches | None = None
    _own_store: Store | None = None

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
        from pgsched.recipes.values import check_limit

        capacity = check_limit("limit", limit)
        return Lock(self._keeper, name, ttl=ttl, timeout=timeout, note=note, capacity=capacity)

    def election(
        self, name: str, *, ttl: Seconds = 30, timeout: Seconds | None = None, note: str | None = None
    ) -> Election:
        """Return an election, in which one process at a time leads."""
        from pgsched.recipes.election import Election

        return Election(self._keeper, name, ttl=ttl, timeout=timeout, note=note)

    @property
    def kv(self) -> Store:
        """Small values under keys that are paths, with versions. The other recipes below keep theirs here, too."""
        from pgsched.recipes.store import Store

        with _lock:
            if self._own_store is None:
                self._own_store = Store(self._keeper)
            return self._own_store

    def value(self, name: str) -> Value:
        """Return a value that programs share. `name`: up to 200 characters; it is the key in `kv`."""
        from pgsched.recipes.shared_values import Value

        return Value(self.kv, name)

    def counter(self, name: str) -> Counter:
        """Return a number that programs add to. `name`: up to 200 characters; it is the key in `kv`."""
        from pgsched.recipes.shared_values import Counter

        return Counter(self._keeper, name)

    def watch(self, prefix: str, *, since: int | None = None, timeout: Seconds | None = None) -> Watch:
        """Return the changes of keys with this prefix, for `for` and `async for`.

        `prefix`: write its first element in full: `payments` or `payments/rates/`, not `pay`. `since`: begin with the
        changes after this version; None: with those from now on. `timeout`: how long to wait for each change; then
        the loop raises TimeoutError, and may go on.
        """
        from pgsched.recipes.watch import Watch

        return Watch(self._watches, prefix, since=since, timeout=timeout)

    def party(self, name: str, *, data: Any = None, ttl: Seconds = 30) -> Party:
        """Return a party, whose members see each other. `data`: what others read of this member, up to 64 KiB."""
        from pgsched.recipes.party import Party

        return Party(self._keeper, self.kv, name, data=data, ttl=ttl)

    def barrier(self, name: str) -> Barrier:
        """Return a barrier, at which all wait until it is removed. `name`: the key in `kv`, up to 200 characters."""
        from pgsched.recipes.barrier import Barrier

        return Barrier(self._watches, self.kv, name)

    def double_barrier(
        self, name: str, size: int, *, ttl: Seconds = 30, timeout: Seconds | None = None, note: Any = None
    ) -> DoubleBarrier:
        """Return a double barrier, whose `size` members begin together and end together.

        `note`: JSON that others read of this member in the store, up to 64 KiB.
        """
        from pgsched.recipes.double_barrier import DoubleBarrier

        return DoubleBarrier(self._keeper, self._watches, name, size, ttl=ttl, timeout=timeout, note=note)

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

        `timeout`: a loop over the queue ends when there was no item for so long; None: it waits without limit.
        `max_attempts`: after so many deliveries without `consume` the item becomes a dead run; 0: it never does.
        `retry_delay`: how long an item is kept back whose `with` block has failed.

        The last two are settings of the consumer: they hold for the items that it gets.
        """
        from pgsched.recipes.items.item_queue import ItemQueue

        return ItemQueue(
            self._keeper, name, hold=hold, timeout=timeout, max_attempts=max_attempts, retry_delay=retry_delay
        )

    def close(self) -> None:
        """Close the connections as `AppBase.close` does; before, end all watches and give back all that is held."""
        self._close_keeper()
        super().close()

    async def close_async(self) -> None:
        """Close the same as `close`."""
        from pgsched.threads import run_in_thread

        if self._own_keeper is not None or self._own_watches is not None:
            await run_in_thread(self._close_keeper)
        await super().close_async()

    @property
    def _keeper(self) -> Keeper:
        from pgsched.recipes.sessions.keeper import Keeper

        with _lock:
            if self._own_keeper is None:
                self._own_keeper = Keeper(self.database)
            return self._own_keeper

    @property
    def _watches(self) -> Watches:
        from pgsched.recipes.watches import Watches

        with _lock:
            if self._own_watches is None:
                self._own_watches = Watches(self.database)
            return self._own_watches

    def _close_keeper(self) -> None:
        if self._own_watches is not None:
            self._own_watches.close()
        if self._own_keeper is not None:
            self._own_keeper.close()
