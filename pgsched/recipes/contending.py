"""Get in the line of a lock, wait, and leave it: what locks, semaphores and elections have in common.

Invariant: nothing stays behind of a call that was cancelled, timed out or failed. Its place is given back, by
the keeper's thread if the caller cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from pgsched.db.queries.recipes import locks
from pgsched.db.queries.recipes.locks import Answer
from pgsched.errors import DatabaseUnreachable, InputError, LeaseLost, PgschedError
from pgsched.recipes.keeper import Keeper
from pgsched.recipes.repeating import repeat, repeat_async
from pgsched.recipes.session import Place, now
from pgsched.recipes.values import Seconds, check_name, check_ttl, check_wait

T = TypeVar("T")
Mode = Literal["exclusive", "shared"]


class Given:
    """The type of `AS_GIVEN`."""


AS_GIVEN: Final = Given()  # the timeout that the handle was made with


class GivingBack:
    """The call that gives a place back, which may be repeated."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._calls = 0

    def __call__(self, conn: Any) -> bool:
        """Give it back; return False where the place was not there any more."""
        self._calls += 1
        return locks.release(conn, self._place.name, self._place.token)

    def check(self, released: bool) -> None:
        """Raise LeaseLost where the place was gone, unless a call before may have given it back."""
        if not released and self._calls == 1:
            raise self._place.lost_error()


class Contending:
    """One contender for a lock: it has one grant at a time, or waits for one."""

    def __init__(
        self,
        keeper: Keeper,
        name: str,
        *,
        ttl: Seconds = 30.0,
        timeout: Seconds | None = None,
        mode: Mode = "exclusive",
        capacity: int | None = None,
        note: str | None = None,
    ) -> None:
        self._keeper = keeper
        self.name: str = check_name("name", name)
        self._ttl_s = check_ttl(ttl)
        self._timeout_s = check_wait(timeout)
        self._mode = mode
        self._capacity = capacity
        self._note = note
        self._place: Place | None = None
        self._busy = threading.Lock()  # held from the beginning of an acquire to the end of its release

    def _begin(self, timeout: Seconds | Given | None) -> float | None:
        """Take this object for one grant; return until when to wait, on the clock of leases."""
        wait_s = self._timeout_s if isinstance(timeout, Given) else check_wait(timeout)
        if not self._busy.acquire(blocking=False):
            raise InputError(
                f'lock: this object holds "{self.name}" or waits for it: make another one for a second grant'
            )
        self._place = None
        return None if wait_s is None else now() + wait_s

    def _enter(self, until: float | None) -> Place:
        """Get in line and wait; return the place, which is granted or lost."""
        ready = threading.Event()
        place = Place(self._keeper.session(self._ttl_s), self.name, ready.set)
        self._keeper.add(place)
        try:
            answer = self._repeat(self._asking(place, until), place)
            self._keeper.answered(place, answer)
            while answer.place is not None and place.fence is None and place.lost is None:
                left = None if until is None else until - now()
                if left is not None and left <= 0:
                    break
                ready.wait(left)
                ready.clear()
            self._check_granted(place, until)
        except BaseException as error:
            self._leave(place, error)
            raise
        return place

    async def _enter_async(self, until: float | None) -> Place:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(ready.set)

        place = Place(await self._keeper.session_async(self._ttl_s), self.name, wake)
        self._keeper.add(place)
        try:
            answer = await self._repeat_async(self._asking(place, until), place)
            self._keeper.answered(place, answer)
            while answer.place is not None and place.fence is None and place.lost is None:
                left = None if until is None else until - now()
                if left is not None and left <= 0:
                    break
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ready.wait(), left)
                ready.clear()
            self._check_granted(place, until)
        except BaseException as error:
            self._leave(place, error)
            raise
        return place

    def _asking(self, place: Place, until: float | None) -> Callable[[Any], Answer]:
        params = {
            "name": self.name, "token": place.token, "session": place.session.token, "mode": self._mode,
            "capacity": self._capacity, "note": self._note,
        }  # fmt: skip

        def ask(conn: Any) -> Answer:
            # the line is left by itself soon after this call has given up, should it be unable to say so
            wait_s = None if until is None else max(0.0, until - now())
            return locks.acquire(conn, {**params, "wait_s": wait_s and wait_s + 1.0})

        return ask

    def _check_granted(self, place: Place, until: float | None) -> None:
        """Raise TimeoutError where the place is neither granted nor lost."""
        if place.fence is None and place.lost is None:
            raise TimeoutError(f'"{self.name}" was not to be had in time: others hold it or stand before it in line')

    def _leave(self, place: Place, error: BaseException) -> None:
        """Leave the line: nothing stays behind of a call that was cancelled, timed out or failed."""
        refused = isinstance(error, PgschedError) and not isinstance(error, DatabaseUnreachable)
        self._keeper.remove(place, give_back=not refused)

    def _has(self, place: Place) -> bool:
        """Take the grant; return False where the place was lost before it was granted."""
        if place.fence is None:
            self._keeper.remove(place, give_back=False)
            return False
        self._place = place
        return True

    def _granted(self) -> Place:
        if self._place is None or self._place.fence is None:
            raise LeaseLost(f'"{self.name}" is not held: acquire it first')
        return self._place

    def _end(self) -> Place:
        place = self._place
        if place is None:
            raise InputError(f'lock: "{self.name}" is not held by this object')
        self._place = None
        place.session.tell()
        self._busy.release()
        return place

    def _repeat(self, call: Callable[[Any], T], place: Place) -> T:
        return repeat(self._keeper.database, call, place)

    async def _repeat_async(self, call: Callable[[Any], T], place: Place) -> T:
        return await repeat_async(self._keeper.database, call, place)
