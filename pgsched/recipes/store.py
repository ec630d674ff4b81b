"""Small values that programs share, under keys that are paths: what people keep in etcd or Consul next to their locks.

Invariant: all changes under the first element of a key follow one another, and each has the next version there.
"""

from __future__ import annotations

import threading
from typing import Any

from pgsched.app.declarations import integer
from pgsched.db.queries.recipes import store
from pgsched.db.queries.recipes.store import Entry
from pgsched.recipes.bound import WRITTEN, Binder, BoundKey
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.values import Seconds, check_key, check_ttl, check_version, json_text

check_limit = integer(1, 2**31 - 1)
Entries = list[Entry]  # the class has a method with the name of the type


class Store:
    """Keys and their values. Each method has a form with `_async`.

    A key is a path of up to 256 characters, such as `payments/rates/EUR`. Its first element belongs to the role that
    used it first, unless an operator has granted its names. A value is JSON of up to 64 KiB. Methods raise InputError,
    NotPermitted, LockTimeout and DatabaseUnreachable.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._bound: dict[str, BoundKey] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> Entry | None:
        """Return a key with its value and version; None where there is no such key."""
        check_key("key", key)
        return self._keeper.database.call(None, lambda conn: store.read_entry(conn, key))

    async def get_async(self, key: str) -> Entry | None:
        """Return a key with its value and version: the asyncio form of `get`."""
        check_key("key", key)
        return await self._keeper.database.call_async(None, lambda conn: store.read_entry(conn, key))

    def put(
        self, key: str, value: Any, *, expected: int | None = None, bound: bool = False, ttl: Seconds = 30
    ) -> int | None:
        """Write a key; return its new version, None where it was not written because of `expected`.

        `expected`: write only if this is the key's version; 0: only if there is no such key. `bound`: the key goes when
        this App is closed, or cut off from the database for longer than `ttl`.
        """
        text = self._check_put(key, value, expected)
        if not bound:
            put = self._keeper.database.call(
                None, lambda conn: store.write_entry(conn, key, text, expected=expected), maybe=WRITTEN
            )
            return self._note(key, put, None)
        place, put = self._binder(ttl).bind(
            key,
            lambda conn, session: store.write_entry(conn, key, text, expected=expected, session=session),
            member=False,
        )
        return self._note(key, put, place)

    async def put_async(
        self, key: str, value: Any, *, expected: int | None = None, bound: bool = False, ttl: Seconds = 30
    ) -> int | None:
        """Write a key: the asyncio form of `put`."""
        text, database = self._check_put(key, value, expected), self._keeper.database
        if not bound:
            put = await database.call_async(
                None, lambda conn: store.write_entry(conn, key, text, expected=expected), maybe=WRITTEN
            )
            return self._note(key, put, None)
        place, put = await self._binder(ttl).bind_async(
            key,
            lambda conn, session: store.write_entry(conn, key, text, expected=expected, session=session),
            member=False,
        )
        return self._note(key, put, place)

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete a key; return False where there is no such key, or `expected` is not its version."""
        self._check_versioned(key, expected)
        version = self._keeper.database.call(None, lambda conn: store.delete_entry(conn, key, expected), maybe=WRITTEN)
        return self._note(key, version, None) is not None

    async def delete_async(self, key: str, *, expected: int | None = None) -> bool:
        """Delete a key: the asyncio form of `delete`."""
        self._check_versioned(key, expected)
        version = await self._keeper.database.call_async(
            None, lambda conn: store.delete_entry(conn, key, expected), maybe=WRITTEN
        )
        return self._note(key, version, None) is not None

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Entries:
        """Return the keys that begin with a prefix, in the order of their characters.

        `after`: only those after this key. `limit`: at most so many. They are read in pages of 1,000, so they need not
        be those of one moment. A prefix without a slash lists the keys that this login may use.
        """
        pages = Pages(prefix, after, limit)
        while not pages.is_complete:
            pages.take(self._keeper.database.call(None, pages.read))
        return pages.entries

    async def list_async(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Entries:
        """Return the keys that begin with a prefix: the asyncio form of `list`."""
        pages = Pages(prefix, after, limit)
        while not pages.is_complete:
            pages.take(await self._keeper.database.call_async(None, pages.read))
        return pages.entries

    def _check_put(self, key: str, value: Any, expected: int | None) -> str:
        self._check_versioned(key, expected)
        return json_text("value", value)

    def _check_versioned(self, key: str, expected: int | None) -> None:
        check_key("key", key)
        if expected is not None:
            check_version("expected", expected)

    def _binder(self, ttl: Seconds) -> Binder:
        return Binder(self._keeper, check_ttl(ttl))

    def _note(self, key: str, version: int | None, place: BoundKey | None) -> int | None:
        """Note which session the key is bound to now: no other one is kept alive for it. Return the version."""
        if version is None:
            dropped = place
        else:
            with self._lock:
                dropped = self._bound.pop(key, None)
                if place is not None:
                    self._bound[key] = place
        if dropped is not None:
            self._keeper.remove(dropped, give_back=False)
        return version


class Pages:
    """The keys with a prefix, of which 1,000 are read at a time."""

    def __init__(self, prefix: str, after: str, limit: int | None) -> None:
        for name, given in (("prefix", prefix), ("after", after)):
            if given != "":
                check_key(name, given)
        self._prefix, self._after = prefix, after
        self._left = None if limit is None else check_limit("limit", limit)
        self.entries: list[Entry] = []
        self.is_complete = False

    def read(self, conn: Any) -> list[Entry]:
        """Read the next page."""
        return store.list_entries(conn, self._prefix, self._after, self._most())

    def take(self, page: list[Entry]) -> None:
        """Add a page that was read."""
        self.entries += page
        self.is_complete = len(page) < self._most()
        if page:
            self._after = page[-1].key
        if self._left is not None:
            self._left -= len(page)
            self.is_complete = self.is_complete or not self._left

    def _most(self) -> int:
        return store.MOST_KEYS if self._left is None else min(self._left, store.MOST_KEYS)
