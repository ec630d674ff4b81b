"""A barrier: while it is set, all who wait at it stand still.

Invariant: whoever waits has seen the barrier set, or goes on.
"""

from __future__ import annotations

from pgsched.recipes.sessions.session import now
from pgsched.recipes.store import Store
from pgsched.recipes.values import Seconds, check_name, check_wait
from pgsched.recipes.watch import Change, Watch
from pgsched.recipes.watches import Watches


class Barrier:
    """A barrier. It is a key of the store, and stays until somebody removes it. Each method has a form with `_async`.

    `name`: up to 200 characters; it is the key in `app.kv`.
    """

    def __init__(self, watches: Watches, kv: Store, name: str) -> None:
        self.name: str = check_name("name", name)
        self._watches = watches
        self._kv = kv

    def set(self) -> bool:
        """Set it; return False where it was set already."""
        return self._kv.put(self.name, True, expected=0) is not None

    async def set_async(self) -> bool:
        """Set it; return False where it was set already."""
        return await self._kv.put_async(self.name, True, expected=0) is not None

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._kv.get(self.name) is not None

    async def is_set_async(self) -> bool:
        """Return whether it is set."""
        return await self._kv.get_async(self.name) is not None

    def remove(self) -> bool:
        """Remove it: all who wait go on. Return False where it was not set."""
        return self._kv.delete(self.name)

    async def remove_async(self) -> bool:
        """Remove it: all who wait go on. Return False where it was not set."""
        return await self._kv.delete_async(self.name)

    def wait(self, timeout: Seconds | None = None) -> None:
        """Wait until it is removed; return at once where it is not set. Raises TimeoutError."""
        until = until_of(timeout)
        if not self.is_set():
            return
        with self._watch() as watch:
            removed: bool | None = None
            while not removed:
                removed = not self.is_set() if removed is None else self._removes(watch, watch.next_item(until))

    async def wait_async(self, timeout: Seconds | None = None) -> None:
        """Wait until it is removed: the asyncio form of `wait`."""
        until = until_of(timeout)
        if not await self.is_set_async():
            return
        async with self._watch() as watch:
            removed: bool | None = None
            while not removed:
                if removed is not None:
                    removed = self._removes(watch, await watch.next_item_async(until))
                else:
                    removed = not await self.is_set_async()

    def _watch(self) -> Watch:
        return Watch(self._watches, self.name)

    def _removes(self, watch: Watch, change: Change | None) -> bool | None:
        """Return whether this change removes the barrier; None: ask the database."""
        if change is None or change.kind == "skipped":
            watch.check_open()
            return None
        return change.key == self.name and change.kind == "deleted"


def until_of(timeout: Seconds | None) -> float | None:
    """Return until when to wait, on the clock of leases; None: without limit."""
    seconds = check_wait(timeout)
    return None if seconds is None else now() + seconds
