"""Item queues: producers put values, consumers get them, each one at a time held by one consumer until it is consumed.

Invariant: an item that was put is in the queue, or held by a session that lives, until it is consumed or dead.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from pgsched.app.declarations import integer
from pgsched.db.queries.recipes import items as statements
from pgsched.db.queries.recipes.items import ItemCounts
from pgsched.errors import InputError
from pgsched.recipes.contending import AS_GIVEN, Given
from pgsched.recipes.items.item import ConsumingMany, Item
from pgsched.recipes.items.item_getting import Getting
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.values import Seconds, check_delay, check_name, check_ttl, check_wait, encode_json

if TYPE_CHECKING:
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn

PUT = "the item may have been put"
PRIORITY = 100  # of items for which none is given
check_priority = integer(0, 999)
check_limit = integer(1, statements.MOST_GOT)
check_attempts = integer(0, 1_000_000)


class ItemQueue:
    """A queue of items: what is put first is got first, of those with the lowest priority number.

    Whoever gets an item holds it until it is consumed. It is handed out again only when it was given back, or when its
    holder has been dead or cut off for the time `hold`. Each method has a form with `_async`.

    `for item in queue` gets one item after the other, and consumes each when the loop goes on to the next; it ends when
    there is none within `timeout`. Where the loop is left, also by an error, the item goes back, unless it was
    consumed, and does not count as tried. Only a `with` block reports a failure: write `with item:` in the loop.
    """

    def __init__(
        self,
        keeper: Keeper,
        name: str,
        *,
        hold: Seconds = 30.0,
        timeout: Seconds | None = None,
        max_attempts: int = 0,
        retry_delay: Seconds = 0.0,
    ) -> None:
        self._keeper = keeper
        self.name: str = check_name("name", name)
        self._hold_s = check_ttl(hold)
        self._timeout_s = check_wait(timeout)
        self._max_attempts = check_attempts("max_attempts", max_attempts)
        self._retry_delay_s = check_delay("retry_delay", retry_delay)

    # ---- put

    def put(
        self, item: Any, *, priority: int = PRIORITY, delay: Seconds = 0, connection: SyncConn | None = None
    ) -> int:
        """Put an item, which is a JSON value of at most 1 MiB; return its id.

        `priority`: 0 to 999, the lowest first. `delay`: for how long nobody gets it. `connection`: put it in your
        transaction.

        Raises InputError, NotPermitted for a queue of somebody else, and QueueFull where the queue has its max_depth.
        After DatabaseUnreachable the item may have been put.
        """
        return self._keeper.database.call(connection, self._putting(item, priority, delay), maybe=PUT)

    async def put_async(
        self, item: Any, *, priority: int = PRIORITY, delay: Seconds = 0, connection: AsyncConn | None = None
    ) -> int:
        """Put an item: the asyncio form of `put`."""
        return await self._keeper.database.call_async(connection, self._putting(item, priority, delay), maybe=PUT)

    def put_many(
        self,
        items: Iterable[Any],
        *,
        priority: int = PRIORITY,
        delay: Seconds = 0,
        connection: SyncConn | None = None,
    ) -> list[int]:
        """Put up to 10,000 items in their order, all or none of them; return their ids. Raises as `put`."""
        return self._keeper.database.call(connection, self._putting_many(items, priority, delay), maybe=PUT)

    async def put_many_async(
        self,
        items: Iterable[Any],
        *,
        priority: int = PRIORITY,
        delay: Seconds = 0,
        connection: AsyncConn | None = None,
    ) -> list[int]:
        """Put items: the asyncio form of `put_many`."""
        return await self._keeper.database.call_async(connection, self._putting_many(items, priority, delay), maybe=PUT)

    # ---- get

    def get(self, timeout: Seconds | Given | None = AS_GIVEN, *, hold: Seconds | Given = AS_GIVEN) -> Item:
        """Wait for the first item and hold it; return it. Best used in a `with` statement.

        `timeout`: seconds, a timedelta or a text such as "10m"; None waits without limit, 0 not at all. `hold`: how
        long it stays held when this process dies or is cut off. Left out: as the queue was made.

        Raises TimeoutError, NotPermitted for a queue of somebody else, DatabaseUnreachable, and LeaseLost where the App
        is closed meanwhile.
        """
        return self.get_many(1, timeout, hold=hold)[0]

    async def get_async(self, timeout: Seconds | Given | None = AS_GIVEN, *, hold: Seconds | Given = AS_GIVEN) -> Item:
        """Wait for the first item and hold it: the asyncio form of `get`."""
        return (await self.get_many_async(1, timeout, hold=hold))[0]

    def get_many(
        self, limit: int, timeout: Seconds | Given | None = AS_GIVEN, *, hold: Seconds | Given = AS_GIVEN
    ) -> list[Item]:
        """Wait until there is an item; return all that there are then, up to `limit`, in their order.

        A call returns at most 1,000 items, or 8 MiB of them. Otherwise it does what `get` does.
        """
        call = self._getting(limit, timeout, hold)
        found: list[Item] = []
        while not found:  # again, if the session was lost while it waited
            found = call.run()
        return found

    async def get_many_async(
        self, limit: int, timeout: Seconds | Given | None = AS_GIVEN, *, hold: Seconds | Given = AS_GIVEN
    ) -> list[Item]:
        """Wait until there is an item: the asyncio form of `get_many`."""
        call = self._getting(limit, timeout, hold)
        found: list[Item] = []
        while not found:
            found = await call.run_async()
        return found

    def __iter__(self) -> ItemLoop:
        """Get one item after the other."""
        return ItemLoop(self)

    def __aiter__(self) -> ItemLoop:
        """Get one item after the other."""
        return ItemLoop(self)

    # ---- several at once; figures

    def consume_many(self, items: Iterable[Item], *, connection: SyncConn | None = None) -> None:
        """Consume items that are held. Raises LeaseLost where some were lost; the others are consumed all the same.

        `connection`: consume them in your transaction, as `Item.consume` does.
        """
        call, database = ConsumingMany(items), self._keeper.database
        found = call.send(database) if connection is None else database.call(connection, call)
        call.note(found, connection is not None)

    async def consume_many_async(self, items: Iterable[Item], *, connection: AsyncConn | None = None) -> None:
        """Consume items that are held: the asyncio form of `consume_many`."""
        call, database = ConsumingMany(items), self._keeper.database
        found = await (call.send_async(database) if connection is None else database.call_async(connection, call))
        call.note(found, connection is not None)

    def counts(self) -> ItemCounts:
        """Return how many items there are that are not consumed, by their state."""
        return self._keeper.database.call(None, lambda conn: statements.count_items(conn, self.name))

    async def counts_async(self) -> ItemCounts:
        """Return how many items there are, by their state: the asyncio form of `counts`."""
        return await self._keeper.database.call_async(None, lambda conn: statements.count_items(conn, self.name))

    def count(self) -> int:
        """Return how many items there are that are not consumed."""
        return sum(self.counts())

    async def count_async(self) -> int:
        """Return how many items there are that are not consumed: the asyncio form of `count`."""
        return sum(await self.counts_async())

    def __len__(self) -> int:
        """Return how many items there are that are not consumed."""
        return self.count()

    def __bool__(self) -> bool:
        """Return True: an empty queue is a queue."""
        return True

    # ---- what is sent

    def _putting(self, item: Any, priority: int, delay: Seconds) -> Callable[[Any], int]:
        text, level = encode_json("item", item), check_priority("priority", priority)
        delay_s = check_delay("delay", delay)
        return lambda conn: statements.put(conn, self.name, text, level, delay_s)

    def _putting_many(self, items: Iterable[Any], priority: int, delay: Seconds) -> Callable[[Any], list[int]]:
        texts = [encode_json("item", item) for item in islice(items, statements.MOST_PUT + 1)]
        if len(texts) > statements.MOST_PUT:
            raise InputError(f"items: more than {statements.MOST_PUT} in a call", "items")
        level, delay_s = check_priority("priority", priority), check_delay("delay", delay)
        return lambda conn: statements.put_many(conn, self.name, f"[{','.join(texts)}]", level, delay_s)

    def _getting(self, limit: int, timeout: Seconds | Given | None, hold: Seconds | Given) -> Getting:
        wait_s = self._timeout_s if isinstance(timeout, Given) else check_wait(timeout)
        hold_s = self._hold_s if isinstance(hold, Given) else check_ttl(hold)
        most = check_limit("limit", limit)
        return Getting(self._keeper, self.name, most, wait_s, hold_s, self._max_attempts, self._retry_delay_s)


class ItemLoop:
    """The items of a queue, one after the other; each is consumed when the next one is asked for."""

    def __init__(self, queue: ItemQueue) -> None:
        self._queue = queue
        self._item: Item | None = None

    def __iter__(self) -> ItemLoop:
        """Return this object."""
        return self

    def __aiter__(self) -> ItemLoop:
        """Return this object."""
        return self

    def __next__(self) -> Item:
        """Consume the item before, and get the next one. Raises LeaseLost where the item before was lost."""
        last, self._item = self._item, None
        if last is not None:
            with last:  # consumes it; where that fails, it goes back
                pass
        with contextlib.suppress(TimeoutError):
            self._item = self._queue.get()
        if self._item is None:
            raise StopIteration
        return self._item

    async def __anext__(self) -> Item:
        """Consume the item before, and get the next one: the asyncio form of `__next__`."""
        last, self._item = self._item, None
        if last is not None:
            async with last:
                pass
        with contextlib.suppress(TimeoutError):
            self._item = await self._queue.get_async()
        if self._item is None:
            raise StopAsyncIteration
        return self._item

    def __del__(self) -> None:
        """Give back the item with which the loop was left; at the end of the program, its session's end does that."""
        if self._item is not None and not sys.is_finalizing():
            self._item.drop()
