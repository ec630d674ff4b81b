"""Whether an item that was got is still held, or was consumed, given back or lost. What is sent is in `Item`.

Invariant: an item that was consumed in a transaction of the caller may come back, where that is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgsched.db.queries.recipes import items
from pgsched.errors import InputError, LeaseLost
from pgsched.recipes.items.item_waiting import LeftItem, Waiting
from pgsched.recipes.sessions.keeper import Keeper


class Hold:
    """What one call has got: items with one token, on one session.

    `retry_delay_s`: how long an item is kept back that a `with` block has failed with.
    """

    def __init__(self, keeper: Keeper, place: Waiting, ids: Iterable[int], retry_delay_s: float) -> None:
        self.keeper, self.place, self.retry_delay_s = keeper, place, retry_delay_s
        self._ids = set(ids)

    def end(self, item: int) -> None:
        """Note that this item is not held any more."""
        self._ids.discard(item)
        if not self._ids:
            self.keeper.remove(self.place, give_back=False)

    def drop(self) -> None:
        """Give all of them back soon, uncounted, without waiting for that."""
        self.keeper.remove(self.place, give_back=True)


class GivingItemBack:
    """The call that gives an item back, which may be repeated."""

    def __init__(self, item: int, place: Waiting, delay_s: float, error: str | None) -> None:
        self._params = (item, place.item_token, delay_s, error)
        self._repeated = False

    def __call__(self, conn: Any) -> bool:
        """Give it back; return False where it was not held any more, unless a call before may have given it back."""
        repeated, self._repeated = self._repeated, True
        return items.give_back(conn, *self._params) or repeated


class ItemState:
    """An item, without the calls that a program makes on it. `id`: its number in the database."""

    def __init__(self, hold: Hold, item: int) -> None:
        self._hold = hold
        self.id = item
        self._ended: str | None = None
        self._may_come_back = False  # it was consumed in a transaction of the caller, which may be rolled back

    @property
    def place(self) -> Waiting:
        """What holds it: a place that hangs on a session."""
        return self._hold.place

    @property
    def lost(self) -> bool:
        """Whether it is held no more, although it was neither consumed nor given back: another may hold it."""
        return self._ended is None and self.place.lost is not None

    @property
    def is_open(self) -> bool:
        """Whether it was neither consumed nor given back yet."""
        return self._ended is None

    def drop(self) -> None:
        """Give it back soon, uncounted, without waiting for that, if it is held; and all that was got with it."""
        if self._ended is None or self._may_come_back:
            self._ended, self._may_come_back = "given back", False
            self._hold.drop()

    def note_consumed(self, found: bool, in_transaction: bool) -> None:
        """Note whether the database has consumed it (`found`). Raises LeaseLost where it was not held any more."""
        if not found:
            self._end("lost")
            raise self._lost_error()
        self._may_come_back = in_transaction
        self._end("consumed")

    def _note_given_back(self, done: bool) -> None:
        self._may_come_back = False
        self._end("given back" if done else "lost")
        if not done:
            raise self._lost_error()

    def check_held(self) -> None:
        """Raise InputError where it was consumed or given back, and LeaseLost where it was lost."""
        if self._ended == "lost":
            raise self._lost_error()
        if self._ended is not None and not self._may_come_back:
            raise InputError(f"item: {self.id} is not held any more: it was {self._ended}")
        if self.place.lost is not None:
            raise self._lost_error()

    def _lost_error(self) -> LeaseLost:
        """Return the error that says that this item was lost."""
        what = f'item {self.id} of queue "{self.place.name}"'
        return self.place.lost_error(what, "another consumer may have it: undo what you did for it")

    def _leave(self, error: BaseException | None) -> None:
        """Let the keeper give it back soon, unless it has ended or was lost."""
        if self.place.lost is None and (self._ended is None or (error is not None and self._may_come_back)):
            delay_s = 0.0 if error is None else self._delay_after(error)
            call = GivingItemBack(self.id, self.place, delay_s, None if error is None else describe(error))
            self._may_come_back = False
            self._end("given back")
            self._hold.keeper.drop(LeftItem(self.place, call))

    def _delay_after(self, error: BaseException) -> float:
        return self._hold.retry_delay_s if isinstance(error, Exception) else 0.0

    def _end(self, how: str) -> None:
        self._ended = how
        self._hold.end(self.id)


def describe(error: BaseException) -> str | None:
    """Return the text of an error; None where the program ends or a call was cancelled: no attempt has failed then."""
    return f"{type(error).__name__}: {error}"[:10_000] if isinstance(error, Exception) else None
