"""Kazoo's Queue and LockingQueue, on the item queues of pgsched.

Both are the item queue of the same name: `/app/orders` is `app.item_queue("app/orders")`. An entry is bytes, which are
kept as JSON like the data of nodes.

Invariant: an entry that was put is got again until the database has answered that it was removed or consumed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pgsched.errors import DatabaseUnreachable, InputError, LeaseLost
from pgsched.recipes.items.item import Item
from pgsched.recipes.items.item_queue import PRIORITY, ItemQueue
from pgsched.recipes.kazoo.exceptions import SessionExpiredError
from pgsched.recipes.kazoo.paths import name_of, to_bytes, to_json
from pgsched.recipes.kazoo.retry import KazooRetry
from pgsched.recipes.sessions.session import left_s, now

if TYPE_CHECKING:
    from pgsched.recipes.kazoo.client import KazooClient

HIGHEST_PRIORITY = 999
LOST_ENTRY_S = 1.0  # the queue is searched for entries of ended sessions at most five times a second


class BaseQueue:
    """What both queues have in common: their entries, and how these are put."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self.client = client
        self.path = path
        self._name = name_of(path)

    def put(self, value: bytes, priority: int = PRIORITY) -> None:
        """Put an entry: bytes that have at most 1 MiB as JSON.

        `priority`: 0 to 999; a lower number is got first. Of one number, what was put first is got first.

        Raises TypeError, ValueError, and ConnectionLoss, after which the entry may have been put.
        """
        entry, level = entry_of(value), level_of(priority)
        self.client.perform(lambda: self._items().put(entry, priority=level))

    def __len__(self) -> int:
        """Return how many entries there are, with those that are locked."""
        count: int = self.client.retry(self.client.perform, lambda: self._items().count())
        return count

    def _items(self) -> ItemQueue:
        parts = self.client.parts
        return ItemQueue(parts.keeper, self._name, hold=parts.ttl_s)


class Queue(BaseQueue):
    """A queue whose entries are removed when they are got. Who fails afterwards has to put the entry again."""

    def get(self) -> bytes | None:
        """Remove the first entry, and return it; return None at once where there is none.

        It waits during an outage, and up to a second for an entry that went back into the queue because the session
        ended before it was removed. Raises SessionExpiredError where the session ended before the database could say
        whether the entry is removed.
        """
        wait_s = 0.0
        while (item := self.client.retry(self.client.perform, partial(self._first, wait_s))) is not None:
            removal, wait_s = Removal(item), LOST_ENTRY_S
            if self.client.retry(self.client.perform, removal):
                return value_of(item)
            if removal.was_cut_off:
                raise SessionExpiredError(f"{self.path}: the entry may have been removed, or is handed out again")
        return None

    def _first(self, wait_s: float) -> Item | None:
        try:
            return self._items().get(wait_s)
        except TimeoutError:
            return None


class Removal:
    """The call that removes an entry. `was_cut_off`: a call had no answer, so that the entry may have been removed."""

    def __init__(self, item: Item) -> None:
        self._item = item
        self.was_cut_off = False

    def __call__(self) -> bool:
        """Remove it; return False where it is not held any more. Raises DatabaseUnreachable."""
        try:
            self._item.consume()
        except LeaseLost:
            return False
        except DatabaseUnreachable:
            self.was_cut_off = True
            raise
        return True


class LockingQueue(BaseQueue):
    """A queue whose entries stay until they are consumed: `get` locks one, and nobody else gets it meanwhile.

    The lock goes with the session of the client: then the entry is handed out again, in its place. One object has one
    entry at a time.
    """

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(client, path)
        self._item: Item | None = None
        self._getting = threading.Lock()

    @property
    def processing_element(self) -> tuple[str, bytes] | None:
        """The id and the value of the entry that this object has; None where it has none."""
        item = self._present()
        return None if item is None else (str(item.id), value_of(item))

    def put_all(self, values: list[bytes], priority: int = PRIORITY) -> None:
        """Put up to 10,000 entries in their order, all or none of them. Raises as `put`."""
        if not isinstance(values, list):
            raise TypeError(f"values: expected a list of bytes, got {type(values).__name__}")
        entries, level = [entry_of(value) for value in values], level_of(priority)
        self.client.perform(lambda: self._items().put_many(entries, priority=level))

    def get(self, timeout: float | None = None) -> bytes | None:
        """Wait for the first entry and lock it; return it, or None where there is none within `timeout` seconds.

        An object that has an entry returns that one, until it is consumed, released or lost. It waits on over an
        outage. Raises RetryFailedError where that is not over in time, and ConnectionClosedError where the client is
        stopped meanwhile.
        """
        until = None if timeout is None else now() + max(0.0, timeout)
        if not self._getting.acquire(timeout=-1 if until is None else max(0.0, until - now())):
            return None
        try:
            item = self._present()
            if item is None:
                item = self._item = self._wait_for_item(until)
            return None if item is None else value_of(item)
        finally:
            self._getting.release()

    def holds_lock(self) -> bool:
        """Ask the database whether this object still has its entry."""
        return self._act(Item.extend, ends=False)

    def consume(self) -> bool:
        """Remove the entry that this object has; return False where it has none, or has lost it."""
        return self._act(Item.consume)

    def release(self) -> bool:
        """Unlock the entry that this object has; return False where it has none, or has lost it.

        Where the database does not answer, the entry is unlocked as soon as it does.
        """
        return self._act(give_back)

    def _present(self) -> Item | None:
        """Return the entry that this object has, unless it is known to be lost."""
        item = self._item
        return None if item is None or item.lost or not item.is_open else item

    def _wait_for_item(self, until: float | None) -> Item | None:
        again = self.client.retry if until is None else KazooRetry(max_tries=None, deadline=max(0.0, until - now()))

        def wait() -> Item:
            return self._items().get(left_s(until))

        try:
            item: Item = again(self.client.perform, wait)
        except TimeoutError:
            return None
        return item

    def _act(self, action: Callable[[Item], Any], *, ends: bool = True) -> bool:
        """Do this with the entry; return whether it was held. `ends`: then this object has it no more."""
        if (item := self._item) is None:
            return False

        def act() -> bool:
            try:
                action(item)
            except (LeaseLost, InputError):  # InputError: another thread has consumed or released it
                return False
            return True

        was_held: bool = self.client.retry(self.client.perform, act)
        if (ends or not was_held) and self._item is item:
            self._item = None
        return was_held


def give_back(item: Item) -> None:
    """Put an item back; where the database does not answer, as soon as it does. Raises LeaseLost."""
    try:
        item.give_back()
    except DatabaseUnreachable:
        item.drop()


def entry_of(value: bytes) -> Any:
    """Return the JSON value that keeps an entry. Raises TypeError."""
    if not isinstance(value, bytes):
        raise TypeError(f"value: expected bytes, got {type(value).__name__}")
    return to_json(value)


def value_of(item: Item) -> bytes:
    """Return the bytes of an entry; of an item of another kind, which another program has put, its JSON text."""
    value = to_bytes(item.json_value)
    return b"null" if value is None else value


def level_of(priority: int) -> int:
    """Return a priority. Raises TypeError and ValueError."""
    if not isinstance(priority, int):
        raise TypeError(f"priority: expected an int, got {type(priority).__name__}")
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise ValueError(f"priority: expected a number from 0 to {HIGHEST_PRIORITY}, got {priority}")
    return int(priority)
