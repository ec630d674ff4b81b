"""Keys of the store that are bound to a session of this process: members of parties and barriers, and keys of `app.kv`.

Invariant: nothing stays behind of a call that was cancelled or failed. A member's key is deleted, by the keeper's
thread if the caller cannot; also one that a call writes late, whose answer was lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from uuid import UUID

from pgsched.db.enqueuer import Enqueuer
from pgsched.db.queries.recipes import store
from pgsched.errors import DatabaseUnreachable, LeaseLost, PgschedError
from pgsched.recipes.sessions import repeating
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.sessions.places import CallWaker, Place

T = TypeVar("T")
Call = Callable[[Any, UUID], T]  # with a connection and a session's token
WRITTEN = "the key may have been written or deleted"


def nothing() -> None:
    """Do nothing when the session is lost."""


class BoundKey(Place):
    """A key that goes with a session. It stands in no line: the keeper only keeps its session alive.

    `written`: the database has answered that it is there.
    """

    written = False

    @property
    def may_be_there(self) -> bool:
        """Whether the key is there, or may get there by a call that is under way."""
        return self.written or self.open_calls > 0

    def leave(self, conn: Any) -> None:
        """Delete the key."""
        store.delete_entry(conn, self.name)


class Binder:
    """Binds keys to the session of one ttl."""

    def __init__(self, keeper: Keeper, ttl_s: float) -> None:
        self.keeper = keeper
        self._ttl_s = ttl_s

    def bind(
        self, key: str, call: Call[T], *, ready: Callable[[], None] = nothing, member: bool = True
    ) -> tuple[BoundKey, T]:
        """Call what binds a key to a session; return the bound key and the result.

        `ready`: called when the session is lost. `member`: nobody else writes the key, and the call gives the same
        answer when it is repeated.
        """
        for is_second in (False, True):
            place = BoundKey(self.keeper.session(self._ttl_s), key, CallWaker(ready))
            self.keeper.add(place)
            with self._undoing(place, member, is_second):
                send = binding(call, place)
                database = self.keeper.database
                return place, repeat(database, send) if member else database.call(None, send, maybe=WRITTEN)
        raise AssertionError("the second call returns or raises")

    async def bind_async(
        self, key: str, call: Call[T], *, ready: Callable[[], None] = nothing, member: bool = True
    ) -> tuple[BoundKey, T]:
        """Call what binds a key to a session: the asyncio form of `bind`."""
        for is_second in (False, True):
            place = BoundKey(await self.keeper.session_async(self._ttl_s), key, CallWaker(ready))
            self.keeper.add(place)
            with self._undoing(place, member, is_second):
                send = binding(call, place)
                database = self.keeper.database
                return place, await (
                    repeat_async(database, send) if member else database.call_async(None, send, maybe=WRITTEN)
                )
        raise AssertionError("the second call returns or raises")

    @contextlib.contextmanager
    def _undoing(self, place: BoundKey, member: bool, is_second: bool) -> Iterator[None]:
        """Drop the place where the block fails, and delete the key of a member that may have been written.

        Once, do not raise that the session is lost: the database may have ended one that this process took for alive.
        """
        try:
            yield
        except LeaseLost as error:
            self.keeper.remove(place, give_back=False)
            place.session.lose(str(error))
            if is_second:
                raise
        except BaseException as error:
            refused = isinstance(error, PgschedError) and not isinstance(error, DatabaseUnreachable)
            self.keeper.remove(place, give_back=member and not refused)
            raise


def binding(call: Call[T], place: BoundKey) -> Callable[[Any], T]:
    """Return the call with the token of the session."""

    def send(conn: Any) -> T:
        place.open_calls += 1  # until there is an answer
        try:
            result = call(conn, place.session.token)
        except PgschedError as error:
            if not isinstance(error, DatabaseUnreachable):
                place.open_calls -= 1
            raise
        place.open_calls -= 1
        place.written = True
        if place.dropped:  # the caller was cancelled, and the key deleted before it was there
            place.leave(conn)
        return result

    return send


def repeat(database: Enqueuer, call: Callable[[Any], T]) -> T:
    """Call with a connection, again where the answer was lost: for calls that write or delete keys, however often."""
    return repeating.repeat(database, call, maybe=WRITTEN)


async def repeat_async(database: Enqueuer, call: Callable[[Any], T]) -> T:
    """Call with a connection, again where the answer was lost: the asyncio form of `repeat`."""
    return await repeating.repeat_async(database, call, maybe=WRITTEN)
