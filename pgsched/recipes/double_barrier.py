"""A double barrier: n members begin together, and end together.

Invariant: a round opens when n members are inside who are alive, and is over when they all have left or are dead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeVar

from pgsched.app.declarations import integer
from pgsched.errors import InputError, PgschedError
from pgsched.recipes.barrier_member import BarrierMember
from pgsched.recipes.bound import Binder, repeat, repeat_async
from pgsched.recipes.contending import AS_GIVEN, Given
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.sessions.session import now
from pgsched.recipes.values import Seconds, check_name, check_ttl, check_wait, json_text
from pgsched.recipes.watch import Watch
from pgsched.recipes.watches import Watches

Self = TypeVar("Self", bound="DoubleBarrier")

check_size = integer(1, 10_000)


class DoubleBarrier:
    """A double barrier for `size` members. One object is one member; it may go through several rounds.

    Use it with `with` or `async with`, or call `enter` and `leave`; each has a form with `_async`. `name`: up to 200
    characters. `note`: JSON that others read of this member in the store, up to 64 KiB.
    """

    def __init__(
        self,
        keeper: Keeper,
        watches: Watches,
        name: str,
        size: int,
        *,
        ttl: Seconds = 30,
        timeout: Seconds | None = None,
        note: Any = None,
    ) -> None:
        self.name: str = check_name("name", name)
        self.size: int = check_size("size", size)
        self._watches = watches
        self._binder = Binder(keeper, check_ttl(ttl))
        self._database = keeper.database
        self._timeout_s = check_wait(timeout)
        self._note = json_text("note", note)
        self._member: BarrierMember | None = None  # from its entry to the end of the round

    @property
    def lost(self) -> bool:
        """Whether it is inside, and the others take it for gone: its session was not renewed in time."""
        return self._member is not None and self._member.is_lost()

    def enter(self: Self, timeout: Seconds | Given | None = AS_GIVEN) -> Self:
        """Wait until `size` members have entered; return this object. A further member waits for the next round.

        `timeout`: seconds, a timedelta or a text such as "10m"; None waits without limit. Left out: as the object was
        made.

        Raises TimeoutError, after which this member does not count, InputError where others wait for another number of
        members, and DatabaseUnreachable.
        """
        until = self._until(timeout)
        with self._entering() as member, self._watch() as watch:
            while not member.standing.open:
                member.note(*self._binder.bind(member.key, member.enter, ready=watch.wake))
                try:
                    while not member.standing.open:
                        if not member.still_waits(watch, watch.next_item(until, member.is_lost)):
                            break
                except TimeoutError:
                    if repeat(self._database, member.withdraw):
                        raise
        return self

    async def enter_async(self: Self, timeout: Seconds | Given | None = AS_GIVEN) -> Self:
        """Wait until `size` members have entered: the asyncio form of `enter`."""
        until = self._until(timeout)
        with self._entering() as member:
            async with self._watch() as watch:
                while not member.standing.open:
                    member.note(*await self._binder.bind_async(member.key, member.enter, ready=watch.wake))
                    try:
                        while not member.standing.open:
                            if not member.still_waits(watch, await watch.next_item_async(until, member.is_lost)):
                                break
                    except TimeoutError:
                        if await repeat_async(self._database, member.withdraw):
                            raise
        return self

    def leave(self, timeout: Seconds | Given | None = AS_GIVEN) -> None:
        """Leave, and wait until all other members of the round have left, too.

        Raises TimeoutError where they have not in time: then it may be called again, to wait on. Raises LeaseLost where
        this member was taken for gone before, and InputError where it has not entered.
        """
        until = self._until(timeout)
        with self._leaving() as member, self._watch() as watch:
            is_over: bool | None = None
            while not is_over:
                if is_over is None:
                    is_over = repeat(self._database, member.leave)
                else:
                    is_over = member.ends_round(watch, watch.next_item(until))

    async def leave_async(self, timeout: Seconds | Given | None = AS_GIVEN) -> None:
        """Leave, and wait until all others have left, too: the asyncio form of `leave`."""
        until = self._until(timeout)
        with self._leaving() as member:
            async with self._watch() as watch:
                is_over: bool | None = None
                while not is_over:
                    if is_over is None:
                        is_over = await repeat_async(self._database, member.leave)
                    else:
                        is_over = member.ends_round(watch, await watch.next_item_async(until))

    def __enter__(self: Self) -> Self:
        """Enter."""
        return self.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Leave. Wait for the others only if the block raised no error."""
        with contextlib.suppress(*(() if error is None else (PgschedError, TimeoutError))):
            self.leave(AS_GIVEN if error is None else 0)

    async def __aenter__(self: Self) -> Self:
        """Enter."""
        return await self.enter_async()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Leave. Wait for the others only if the block raised no error."""
        with contextlib.suppress(*(() if error is None else (PgschedError, TimeoutError))):
            await self.leave_async(AS_GIVEN if error is None else 0)

    def _watch(self) -> Watch:
        return Watch(self._watches, f"{self.name}/barrier")

    def _until(self, timeout: Seconds | Given | None) -> float | None:
        wait_s = self._timeout_s if isinstance(timeout, Given) else check_wait(timeout)
        return None if wait_s is None else now() + wait_s

    @contextlib.contextmanager
    def _entering(self) -> Iterator[BarrierMember]:
        """Be a new member in the block; none, where it fails."""
        if self._member is not None:
            raise InputError(f'barrier: this object is inside "{self.name}", or has to leave it')
        self._member = member = BarrierMember(self._binder.keeper, self.name, self.size, self._note)
        try:
            yield member
        except BaseException:
            member.drop(give_back=True)
            self._member = None
            raise

    @contextlib.contextmanager
    def _leaving(self) -> Iterator[BarrierMember]:
        """Be no member after the block. Raises LeaseLost where it was none before."""
        member = self._member
        if member is None:
            raise InputError(f'barrier: this object has not entered "{self.name}"')
        if (lost := member.lost_error()) is not None:
            member.drop()
            self._member = None
            raise lost
        try:
            yield member
        except BaseException:
            member.drop(give_back=True)
            raise
        self._member = None
