"""Watch the store: an iterator of changes, for threads and for asyncio.

Invariant: no change is missed, also over a reconnect; or an item says that some were skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal

from pgsched.db.connection.failures import back_off_s
from pgsched.db.connection.json_values import parse_json
from pgsched.db.queries.recipes import store
from pgsched.db.queries.recipes.store import Changes
from pgsched.errors import DatabaseUnreachable, PgschedError
from pgsched.recipes.feeds import Behind, Item, Skip, Watcher
from pgsched.recipes.sessions.session import left_s, now
from pgsched.recipes.values import Seconds, check_key, check_version, check_wait
from pgsched.recipes.watches import Watches

FIRST_PAUSE_S = 0.1  # before the database is asked again


def forget(watches: Watches, watcher: Watcher) -> None:
    """End a watch that nobody has any more, except at the end of the program.

    There the thread that watches stands still for ever, and may have the lock.
    """
    if not sys.is_finalizing():
        watches.detach(watcher)


def never() -> bool:
    """Return False: a wait is not over before something has changed."""
    return False


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a key that is watched.

    `kind`: `put`, `deleted`, or `skipped`. Of skipped changes only the newest state can be read: read it with
    `app.kv.list`. The changes that follow are those after `version`; some of them may be in that list already.
    `version`: grows by 1 with each change under the same first element of keys. `key`: of skipped changes the prefix.
    `value`: None unless it was put; a text that says so where Python cannot read the JSON.
    """

    version: int
    key: str
    kind: Literal["put", "deleted", "skipped"]
    value: Any = None
    changed_at: datetime | None = None


class Watch:
    """The changes of keys with a prefix, in their order: for `for` and `async for`, in one loop at a time.

    It begins with the first item that is asked for, or with `with` or `async with` before. It ends by `close`, by the
    end of `with`, or when nobody has it any more. With a time limit for each item, TimeoutError is raised where there
    is none in time; the next call goes on waiting.
    """

    def __init__(
        self,
        watches: Watches,
        prefix: str,
        *,
        since: int | None = None,
        timeout: Seconds | None = None,
        value_of: Callable[[str], Any] = parse_json,
    ) -> None:
        """`value_of`: makes the value of a change from its JSON text."""
        check_key("prefix", prefix)
        self._watches = watches
        self._value_of = value_of
        self._timeout_s = check_wait(timeout)
        self._seen = None if since is None else check_version("since", since)
        self._watcher = Watcher(prefix, self._seen)
        self._end = weakref.finalize(self, forget, watches, self._watcher)
        self._end.atexit = False
        self._has_begun = False

    @property
    def version(self) -> int | None:
        """The version up to which there are no more changes to come: for `since` of a later watch. None: not begun."""
        return self._seen

    def check_open(self) -> None:
        """Raise PgschedError where the watch was closed."""
        if self._watcher.closed:
            raise PgschedError("the App was closed, and with it all that waits for changes")

    def begin(self) -> None:
        """Watch from now on, or from `since` on. Raises InputError, NotPermitted and DatabaseUnreachable."""
        if not self._has_begun:
            self._read(self._watches.database.call(None, self._asking))

    async def begin_async(self) -> None:
        """Watch from now on: the asyncio form of `begin`."""
        if not self._has_begun:
            self._read(await self._watches.database.call_async(None, self._asking))

    def close(self) -> None:
        """End the watch: a loop over it ends, also in another thread."""
        self._watches.detach(self._watcher)

    def next_item(self, until: float | None, is_over: Callable[[], Any] = never) -> Change | None:
        """Return the next change; None when the watch was closed, or `is_over` returns something true.

        `until`: on the clock of leases. `wake` makes it look whether it is over. Raises TimeoutError.
        """
        ready = threading.Event()
        self._watcher.wake = ready.set
        in_vain = 0  # how often in a row the database was asked, and had nothing
        while not (self._watcher.closed or is_over()):
            found = self._watches.next_of(self._watcher)
            if isinstance(found, Behind):
                if in_vain:
                    ready.wait(self._left(until, in_vain))
                    ready.clear()
                try:
                    self._read(self._watches.database.call(None, self._asking))
                except DatabaseUnreachable:
                    if not self._has_begun:
                        raise
                in_vain = 0 if self._watcher.pending else in_vain + 1
                continue
            if found is not None:
                return self._change(found)
            in_vain, self._seen = 0, self._watcher.position
            ready.wait(self._left(until))
            ready.clear()
        return None

    async def next_item_async(self, until: float | None, is_over: Callable[[], Any] = never) -> Change | None:
        """Return the next change: the asyncio form of `next_item`."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(ready.set)

        self._watcher.wake = wake
        in_vain = 0
        while not (self._watcher.closed or is_over()):
            found = self._watches.next_of(self._watcher)
            if isinstance(found, Behind):
                if in_vain:
                    await self._wait(ready, self._left(until, in_vain))
                try:
                    self._read(await self._watches.database.call_async(None, self._asking))
                except DatabaseUnreachable:
                    if not self._has_begun:
                        raise
                in_vain = 0 if self._watcher.pending else in_vain + 1
                continue
            if found is not None:
                return self._change(found)
            in_vain, self._seen = 0, self._watcher.position
            await self._wait(ready, self._left(until))
        return None

    def wake(self) -> None:
        """Let `next_item` look whether it is over."""
        self._watcher.wake()

    def __iter__(self) -> Watch:
        """Return this object."""
        return self

    def __next__(self) -> Change:
        """Wait for the next change and return it. Raises TimeoutError."""
        if (change := self.next_item(self._until())) is None:
            raise StopIteration
        return change

    def __aiter__(self) -> Watch:
        """Return this object."""
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change and return it. Raises TimeoutError."""
        if (change := await self.next_item_async(self._until())) is None:
            raise StopAsyncIteration
        return change

    def __enter__(self) -> Watch:
        """Begin to watch."""
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """End the watch."""
        self.close()

    async def __aenter__(self) -> Watch:
        """Begin to watch."""
        await self.begin_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End the watch."""
        self.close()

    def _asking(self, conn: Any) -> Changes:
        return store.read_changes(conn, self._watcher.prefix, self._watcher.position)

    def _read(self, changes: Changes) -> None:
        if self._seen is None:
            self._seen = changes.upto
        self._has_begun = True
        self._watches.attach(self._watcher, changes)

    def _change(self, item: Item) -> Change:
        self._seen = item.version
        if isinstance(item, Skip):
            return Change(item.version, self._watcher.prefix, "skipped")
        if item.value is None:
            return Change(item.version, item.key, "deleted", None, item.changed_at)
        return Change(item.version, item.key, "put", self._value_of(item.value), item.changed_at)

    def _until(self) -> float | None:
        return None if self._timeout_s is None else now() + self._timeout_s

    async def _wait(self, ready: asyncio.Event, seconds: float | None) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ready.wait(), seconds)
        ready.clear()

    def _left(self, until: float | None, in_vain: int = 0) -> float | None:
        """Return for how long to wait, in seconds. Raises TimeoutError where the time is over."""
        left = left_s(until)
        if left == 0.0:
            raise TimeoutError(f'no change under "{self._watcher.prefix}" in time')
        pause = back_off_s(in_vain, FIRST_PAUSE_S) if in_vain else None
        return pause if left is None else left if pause is None else min(left, pause)
