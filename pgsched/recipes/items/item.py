"""An item that this process has got from a queue: it holds it until the item is consumed or given back.

Invariant: only the present holder consumes an item. The database compares the token by which it was got, and whether
the holder's session lives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pgsched.db.connection.json_values import program_value
from pgsched.db.enqueuer import Enqueuer
from pgsched.db.queries.recipes import items
from pgsched.db.queries.recipes.items import ItemRow
from pgsched.errors import LeaseLost, PgschedError
from pgsched.recipes.items.item_state import GivingItemBack, Hold, ItemState, describe
from pgsched.recipes.sessions.repeating import repeat, repeat_async
from pgsched.recipes.sessions.session import Session, now
from pgsched.recipes.values import Seconds, check_delay

CONSUMED = "the item may have been consumed"
GIVEN_BACK = "the item may have been given back"

if TYPE_CHECKING:
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn


class Item(ItemState):
    """An item of a queue, held by this process until it is consumed or given back, or until `lost`.

    In a `with` or `async with` block it is consumed at the end, and given back where the block fails.

    `attempt`: how often it was handed out, from 1. `put_at`: when it was put.
    """

    def __init__(self, hold: Hold, row: ItemRow) -> None:
        super().__init__(hold, row.id)
        self._value = row.value
        self.priority: int = row.priority
        self.attempt: int = row.attempt
        self.put_at: datetime = row.put_at

    def __repr__(self) -> str:
        return f"<Item {self.id} of {self.place.name!r}>"

    @property
    def value(self) -> Any:
        """What was put. Raises InputError where Python cannot read the JSON."""
        return program_value(self._value, "item")

    @property
    def json_value(self) -> Any:
        """What was put, as it was read: an UnreadableJson where Python cannot read the JSON."""
        return self._value

    def consume(self, *, connection: SyncConn | None = None) -> None:
        """Say that it is done: it is deleted. Raises LeaseLost where it was lost, InputError where it is not held.

        `connection`: consume it in your transaction: what that writes and the end of the item are one. Roll it back,
        and the item is held as before.
        """
        call = self._consuming()
        found = (
            self._repeat(call, CONSUMED) if connection is None else self._hold.keeper.database.call(connection, call)
        )
        self.note_consumed(found, connection is not None)

    async def consume_async(self, *, connection: AsyncConn | None = None) -> None:
        """Say that it is done: the asyncio form of `consume`."""
        call = self._consuming()
        found = await (
            self._repeat_async(call, CONSUMED)
            if connection is None
            else self._hold.keeper.database.call_async(connection, call)
        )
        self.note_consumed(found, connection is not None)

    def give_back(self, *, delay: Seconds = 0, error: str | None = None) -> None:
        """Put it back into the queue, at its place. Raises LeaseLost where it was lost.

        `delay`: for how long nobody gets it. `error`: why; then it counts as an attempt, and may have been the last
        one.
        """
        self._note_given_back(self._repeat(self._giving_back(delay, error), GIVEN_BACK))

    async def give_back_async(self, *, delay: Seconds = 0, error: str | None = None) -> None:
        """Put it back into the queue: the asyncio form of `give_back`."""
        self._note_given_back(await self._repeat_async(self._giving_back(delay, error), GIVEN_BACK))

    def extend(self) -> None:
        """Hold it for the whole time of its hold from now on. Raises LeaseLost where it was lost.

        Holds are extended by themselves while this process lives; a call makes sure before something long or dear.
        """
        sent_at = now()
        self._extended(sent_at, self._repeat(self._extending()))

    async def extend_async(self) -> None:
        """Hold it for the whole time of its hold: the asyncio form of `extend`."""
        sent_at = now()
        self._extended(sent_at, await self._repeat_async(self._extending()))

    def __enter__(self) -> Item:
        """Return this item."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Consume it, if the block has not, or give it back. Raises LeaseLost where it was lost.

        Where the database cannot be asked, it is given back as soon as possible.
        """
        try:
            if error is None:
                if self._ended is None:
                    self.consume()
            elif self._ended is None or self._may_come_back:
                with contextlib.suppress(PgschedError):
                    self.give_back(delay=self._delay_after(error), error=describe(error))
        finally:
            self._leave(error)

    async def __aenter__(self) -> Item:
        """Return this item."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Consume it, if the block has not, or give it back: the asyncio form of `__exit__`."""
        try:
            if error is None:
                if self._ended is None:
                    await self.consume_async()
            elif self._ended is None or self._may_come_back:
                with contextlib.suppress(PgschedError):
                    await self.give_back_async(delay=self._delay_after(error), error=describe(error))
        finally:
            self._leave(error)

    # ---- what is sent, and what follows from the answer

    def _repeat(self, call: Callable[[Any], bool], maybe: str | None = None) -> bool:
        return repeat(self._hold.keeper.database, call, self.place, maybe=maybe)

    async def _repeat_async(self, call: Callable[[Any], bool], maybe: str | None = None) -> bool:
        return await repeat_async(self._hold.keeper.database, call, self.place, maybe=maybe)

    def _consuming(self) -> Callable[[Any], bool]:
        self.check_held()
        session = self.place.session.token
        return lambda conn: self.id in items.consume(conn, [(self.id, self.place.item_token)], session)

    def _giving_back(self, delay: Seconds, error: str | None) -> Callable[[Any], bool]:
        self.check_held()
        return GivingItemBack(self.id, self.place, check_delay("delay", delay), error)

    def _extending(self) -> Callable[[Any], bool]:
        self.check_held()
        return lambda conn: items.extend(conn, self.id, self.place.item_token)

    def _extended(self, sent_at: float, lives: bool) -> None:
        if not lives:
            raise self._lost_error()
        self.place.session.renewed(sent_at)


class ConsumingMany:
    """The call that consumes several items."""

    def __init__(self, chosen: Iterable[Item]) -> None:
        self._items = list(chosen)
        for item in self._items:
            item.check_held()

    def send(self, database: Enqueuer) -> set[int]:
        """Consume them, again where the answer was lost; return the ids of those that were held."""
        return repeat(database, self, self._items[0].place, maybe=CONSUMED) if self._items else set()

    async def send_async(self, database: Enqueuer) -> set[int]:
        """Consume them: the asyncio form of `send`."""
        return await repeat_async(database, self, self._items[0].place, maybe=CONSUMED) if self._items else set()

    def __call__(self, conn: Any) -> set[int]:
        """Consume them; return the ids of those that were held."""
        by_session: dict[Session, list[tuple[int, UUID]]] = {}
        for item in self._items:
            by_session.setdefault(item.place.session, []).append((item.id, item.place.item_token))
        return set[int]().union(*(items.consume(conn, pairs, one.token) for one, pairs in by_session.items()))

    def note(self, found: set[int], in_transaction: bool) -> None:
        """Note which were consumed. Raises LeaseLost where some were lost."""
        lost: LeaseLost | None = None
        for item in self._items:
            try:
                item.note_consumed(item.id in found, in_transaction)
            except LeaseLost as error:
                lost = error
        if lost is not None:
            raise lost
