"""Locks and semaphores: held by a lease, in the order in which they were asked for, each grant with a fence number.

Invariant: of two grants of a lock the later one has the higher fence, and `assert_held` passes for the last one only.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from pgsched.db.queries.recipes import locks
from pgsched.db.queries.recipes.locks import Contender
from pgsched.errors import PgschedError
from pgsched.recipes.contending import AS_GIVEN, Contending, Given, GivingBack
from pgsched.recipes.session import now
from pgsched.recipes.values import Seconds, check_wait

if TYPE_CHECKING:
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn

Self = TypeVar("Self", bound="Lock")


class Lock(Contending):
    """A lock, read lock, write lock or semaphore. One object is one contender: it has one grant at a time.

    Use it with `with` or `async with`, or call `acquire` and `release`; each has a form with `_async`.

    `name`: up to 200 characters. `fence`: the number of the present grant; higher than that of every grant before it.
    """

    # ---- the state

    @property
    def fence(self) -> int:
        """The fence of the grant. Raises LeaseLost where nothing is held."""
        return self._granted().fence or 0

    @property
    def held(self) -> bool:
        """Whether it is held: granted, and not lost."""
        return self._place is not None and self._place.fence is not None and self._place.lost is None

    @property
    def lost(self) -> bool:
        """Whether it was granted, and is lost: another process may hold it."""
        return self._place is not None and self._place.fence is not None and self._place.lost is not None

    @property
    def lease_left_s(self) -> float:
        """For how many seconds it is held at least, if it is not renewed any more; 0 where it is lost or not held."""
        place = self._place
        if place is None or place.fence is None or place.lost is not None:
            return 0.0
        return max(0.0, place.session.deadline - now())

    def wait_lost(self, timeout: Seconds | None = None) -> bool:
        """Wait until it is lost, or given back; return False when the time is over."""
        place = self._granted()
        return place.session.wait(lambda: place.lost is not None or self._place is not place, check_wait(timeout))

    async def wait_lost_async(self, timeout: Seconds | None = None) -> bool:
        """Wait like `wait_lost`, without blocking the event loop."""
        place = self._granted()
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(changed.set)

        until = None if (wait_s := check_wait(timeout)) is None else now() + wait_s
        place.session.watch(wake)
        try:
            while place.lost is None and self._place is place:
                if until is not None and until <= now():
                    return False
                left = place.session.deadline - now()
                left = left if until is None else min(left, until - now())
                changed.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), max(0.001, left))
        finally:
            place.session.unwatch(wake)
        return True

    # ---- acquire

    def acquire(self: Self, timeout: Seconds | Given | None = AS_GIVEN) -> Self:
        """Wait until it is granted, in line with the others; return this object.

        `timeout`: seconds or a timedelta; None waits without limit, 0 not at all. Left out: as the object was made.

        Raises TimeoutError, InputError where the object has a grant or waits for one, NotPermitted for a name of
        somebody else, and DatabaseUnreachable.
        """
        until = self._begin(timeout)
        try:
            while not self._has(self._enter(until)):
                pass  # the session was lost while it waited: get in line again
        except BaseException:
            self._busy.release()
            raise
        return self

    async def acquire_async(self: Self, timeout: Seconds | Given | None = AS_GIVEN) -> Self:
        """Wait until it is granted: the asyncio form of `acquire`."""
        until = self._begin(timeout)
        try:
            while not self._has(await self._enter_async(until)):
                pass
        except BaseException:
            self._busy.release()
            raise
        return self

    def try_acquire(self) -> bool:
        """Acquire it if that needs no wait; return whether it is held."""
        try:
            self.acquire(0)
        except TimeoutError:
            return False
        return True

    async def try_acquire_async(self) -> bool:
        """Acquire it if that needs no wait: the asyncio form of `try_acquire`."""
        try:
            await self.acquire_async(0)
        except TimeoutError:
            return False
        return True

    # ---- use

    def assert_held(self, connection: SyncConn) -> None:
        """Raise LeaseLost in your transaction unless this grant is held; it stays so until the transaction ends.

        What the transaction writes is written by the holder, or not at all. Call it first in the transaction.
        """
        fence = self.fence
        self._keeper.database.call(connection, lambda conn: locks.assert_lock(conn, self.name, fence))

    async def assert_held_async(self, connection: AsyncConn) -> None:
        """Raise LeaseLost in your transaction unless this grant is held: the asyncio form of `assert_held`."""
        fence = self.fence
        await self._keeper.database.call_async(connection, lambda conn: locks.assert_lock(conn, self.name, fence))

    def line(self, limit: int = 1000) -> list[Contender]:
        """Return who holds it and who waits for it, in their order."""
        return self._keeper.database.call(None, lambda conn: locks.read_line(conn, self.name, limit))

    async def line_async(self, limit: int = 1000) -> list[Contender]:
        """Return who holds it and who waits for it: the asyncio form of `line`."""
        return await self._keeper.database.call_async(None, lambda conn: locks.read_line(conn, self.name, limit))

    # ---- release

    def release(self) -> None:
        """Give it back. Raises LeaseLost where it was lost before, and InputError where nothing is held."""
        place = self._end()
        self._keeper.remove(place, give_back=False)
        giving = GivingBack(place)
        if place.lost is not None:
            self._keeper.remove(place, give_back=True)
            raise place.lost_error()
        giving.check(self._repeat(giving, place))

    async def release_async(self) -> None:
        """Give it back: the asyncio form of `release`."""
        place = self._end()
        self._keeper.remove(place, give_back=False)
        giving = GivingBack(place)
        if place.lost is not None:
            self._keeper.remove(place, give_back=True)
            raise place.lost_error()
        giving.check(await self._repeat_async(giving, place))

    def __enter__(self: Self) -> Self:
        """Acquire it."""
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Give it back. Raises LeaseLost where it was lost, unless the block has raised an error."""
        with contextlib.suppress(*(() if error is None else (PgschedError,))):
            self.release()

    async def __aenter__(self: Self) -> Self:
        """Acquire it."""
        return await self.acquire_async()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Give it back. Raises LeaseLost where it was lost, unless the block has raised an error."""
        with contextlib.suppress(*(() if error is None else (PgschedError,))):
            await self.release_async()
