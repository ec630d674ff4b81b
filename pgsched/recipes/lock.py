"""Locks and semaphores: held by a lease, in the order in which they were asked for, each grant with a fence number.

Invariant: of two grants of a lock the later one has the higher fence, and `assert_held` passes for the last one only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from pgsched.db.callers.calls import call_on, call_on_async
from pgsched.db.queries.recipes import locks
from pgsched.db.queries.recipes.locks import Contender
from pgsched.errors import InputError, PgschedError
from pgsched.recipes.contending import AS_GIVEN, Attempt, Contending, Given, LoopWaker
from pgsched.recipes.sessions.places import Place
from pgsched.recipes.sessions.session import now
from pgsched.recipes.values import Seconds, check_wait

GIVEN_BACK = "the lock may have been given back; if not, it is given back as soon as possible"

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
        """The fence of the grant. Raises InputError where it was never acquired, or given back."""
        return self._granted().fence or 0

    @property
    def is_held(self) -> bool:
        """Whether it is held: granted, and not lost."""
        return self._place is not None and self._place.lost is None

    @property
    def lost(self) -> bool:
        """Whether it was granted, and is lost: another process may hold it."""
        return self._place is not None and self._place.lost is not None

    @property
    def lease_left_s(self) -> float:
        """Seconds until the lease ends if no further renewal succeeds; 0 where it is lost or not held."""
        place = self._place
        if place is None or place.fence is None or place.lost is not None:
            return 0.0
        return max(0.0, place.session.deadline - now())

    def wait_lost(self, timeout: Seconds | None = None) -> bool:
        """Wait until it is lost, or given back; return False when the time is over.

        Raises InputError where nothing is held.
        """
        place = self._granted()
        session = place.session
        return session.losses.wait(
            lambda: place.lost is not None or self._place is not place, session.pause_s, check_wait(timeout)
        )

    async def wait_lost_async(self, timeout: Seconds | None = None) -> bool:
        """Wait like `wait_lost`, without blocking the event loop."""
        place = self._granted()
        changed = LoopWaker()
        until = None if (wait_s := check_wait(timeout)) is None else now() + wait_s
        place.session.losses.add_watcher(changed.wake)
        try:
            while place.lost is None and self._place is place:
                if until is not None and until <= now():
                    return False
                left = place.session.pause_s()
                await changed.wait(max(0.001, left if until is None else min(left, until - now())))
        finally:
            place.session.losses.remove_watcher(changed.wake)
        return True

    def _granted(self) -> Place:
        place = self._place
        if place is None:
            raise InputError(f'lock: "{self.name}" is not held by this object: acquire it first')
        return place

    # ---- acquire

    def acquire(self: Self, timeout: Seconds | Given | None = AS_GIVEN) -> Self:
        """Wait until it is granted, in line with the others; return this object.

        `timeout`: seconds, a timedelta or a text such as "10m"; None waits without limit, 0 not at all. Left out: as
        the object was made.

        Raises TimeoutError, WaitCancelled after `cancel` or when the App is closed, InputError where the object has a
        grant or waits for one, NotPermitted for a name of others, and DatabaseUnreachable.
        """
        attempt = Attempt()
        try:
            until = self._begin(attempt, timeout)
            while not attempt.granted:
                self._enter(attempt, until)
            return self
        except BaseException:
            self._abandon(attempt)
            raise

    async def acquire_async(self: Self, timeout: Seconds | Given | None = AS_GIVEN) -> Self:
        """Wait until it is granted: the asyncio form of `acquire`."""
        attempt = Attempt()
        try:
            until = self._begin(attempt, timeout)
            while not attempt.granted:
                await self._enter_async(attempt, until)
            return self
        except BaseException:
            self._abandon(attempt)
            raise

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

        What the transaction writes is written by the holder, or not at all. Call it first in the transaction. Nobody
        else gets the lock before the transaction ends, also if this lock is given back or lost: keep it short.

        Raises InputError where nothing is held, or where the connection has no open transaction and commits each
        statement.
        """
        call_on(connection, self._asserting(), lasts=True)

    async def assert_held_async(self, connection: AsyncConn) -> None:
        """Raise LeaseLost in your transaction unless this grant is held: the asyncio form of `assert_held`."""
        await call_on_async(connection, self._asserting(), lasts=True)

    def _asserting(self) -> Callable[[Any], None]:
        fence = self.fence
        return lambda conn: locks.assert_lock(conn, self.name, fence)

    def line(self, limit: int = 1000) -> list[Contender]:
        """Return who holds it and who waits for it, in their order."""
        return self._keeper.database.call(None, lambda conn: locks.read_line(conn, self.name, limit))

    async def line_async(self, limit: int = 1000) -> list[Contender]:
        """Return who holds it and who waits for it: the asyncio form of `line`."""
        return await self._keeper.database.call_async(None, lambda conn: locks.read_line(conn, self.name, limit))

    # ---- release

    def release(self) -> None:
        """Give it back. Raises LeaseLost where it was lost before, and InputError where nothing is held.

        Raises DatabaseUnreachable and LockTimeout where it is unknown whether it was held until now. Then it is given
        back as soon as possible.
        """
        attempt, place = self._granted_attempt()
        try:
            giving_back = self._end(attempt, place)
            giving_back.check(self._repeat(giving_back, place, GIVEN_BACK))
        except BaseException:
            self._abandon(attempt)
            raise
        self._keeper.drop(place, released=True)

    async def release_async(self) -> None:
        """Give it back: the asyncio form of `release`."""
        attempt, place = self._granted_attempt()
        try:
            giving_back = self._end(attempt, place)
            giving_back.check(await self._repeat_async(giving_back, place, GIVEN_BACK))
        except BaseException:
            self._abandon(attempt)
            raise
        self._keeper.drop(place, released=True)

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
