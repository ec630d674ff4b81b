"""A party: processes that are there at the moment, each with data that the others read.

Invariant: a member is there as long as its session lives: it survives a reconnect within the ttl, and is gone at once
when it leaves, or when its ttl is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID, uuid4

from pgsched.db.queries.recipes import store
from pgsched.errors import InputError, LeaseLost, PgschedError
from pgsched.recipes.bound import Binder, BoundKey, Call, repeat, repeat_async
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.store import Entries, Store
from pgsched.recipes.values import Seconds, check_name, check_ttl, json_text

Self = TypeVar("Self", bound="Party")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a party. `id`: unique. `data`: what it has joined with. `since`: when it joined."""

    id: str
    data: Any
    since: datetime


class Party:
    """A party. One object is at most one member; it may also only look who is there.

    Use it with `with` or `async with`, or call `join` and `leave`; each has a form with `_async`.

    `name`: up to 200 characters. `prefix`: that of its members' keys, for `app.watch`.
    """

    def __init__(self, keeper: Keeper, kv: Store, name: str, *, data: Any = None, ttl: Seconds = 30) -> None:
        self.name: str = check_name("name", name)
        self.prefix = f"{self.name}/party/"
        self._kv = kv
        self._binder = Binder(keeper, check_ttl(ttl))
        self._data = json_text("data", data)
        self._place: BoundKey | None = None

    @property
    def id(self) -> str | None:
        """The id of this member; None while it has not joined."""
        return None if self._place is None else self._place.name.removeprefix(self.prefix)

    @property
    def lost(self) -> bool:
        """Whether it has joined, and the others do not see it any more, because its session was not renewed in time."""
        return self._place is not None and self._place.lost is not None

    def join(self: Self, data: Any = None) -> Self:
        """Join with these data, or with those that the object was made with; return this object.

        `data`: JSON of up to 64 KiB. Raises InputError where it has joined already.
        """
        key, call = self._joining(data)
        self._place, _ = self._binder.bind(key, call)
        return self

    async def join_async(self: Self, data: Any = None) -> Self:
        """Join with these data: the asyncio form of `join`."""
        key, call = self._joining(data)
        self._place, _ = await self._binder.bind_async(key, call)
        return self

    def leave(self) -> None:
        """Leave: the others do not see it any more. Raises LeaseLost where they did not before, InputError outside."""
        with self._leaving() as place:
            repeat(self._binder.keeper.database, place.leave)

    async def leave_async(self) -> None:
        """Leave: the asyncio form of `leave`."""
        with self._leaving() as place:
            await repeat_async(self._binder.keeper.database, place.leave)

    def members(self) -> list[Member]:
        """Return who is there, in no particular order."""
        return self._members_of(self._kv.list(self.prefix))

    async def members_async(self) -> list[Member]:
        """Return who is there, in no particular order."""
        return self._members_of(await self._kv.list_async(self.prefix))

    def __enter__(self: Self) -> Self:
        """Join."""
        return self.join()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Leave. Raises LeaseLost where it was lost, unless the block has raised an error."""
        with contextlib.suppress(*(() if error is None else (PgschedError,))):
            self.leave()

    async def __aenter__(self: Self) -> Self:
        """Join."""
        return await self.join_async()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Leave. Raises LeaseLost where it was lost, unless the block has raised an error."""
        with contextlib.suppress(*(() if error is None else (PgschedError,))):
            await self.leave_async()

    def _joining(self, data: Any) -> tuple[str, Call[int | None]]:
        if self._place is not None and not self.lost:
            raise InputError(f'party: this object is a member of "{self.name}": make another one for a second member')
        text = self._data if data is None else json_text("data", data)
        key = f"{self.prefix}{uuid4().hex}"

        def join(conn: Any, session: UUID) -> int | None:
            return store.write_entry(conn, key, text, session=session)

        return key, join

    @contextlib.contextmanager
    def _leaving(self) -> Iterator[BoundKey]:
        """Let the block delete the key; where it fails, the keeper's thread deletes it. Raises LeaseLost."""
        place, self._place = self._place, None
        if place is None:
            raise InputError(f'party: this object is no member of "{self.name}"')
        if place.lost is not None:  # its key goes with its session, or is that of the parent process
            self._binder.keeper.remove(place, give_back=False)
            raise LeaseLost(f'party "{self.name}": this member is gone: {place.lost}; join again')
        try:
            yield place
        except BaseException:
            self._binder.keeper.remove(place, give_back=True)
            raise
        place.written = False
        self._binder.keeper.remove(place, give_back=place.may_be_there)

    def _members_of(self, entries: Entries) -> list[Member]:
        return [
            Member(entry.key.removeprefix(self.prefix), entry.value, entry.changed_at)
            for entry in entries
            if entry.bound
        ]
