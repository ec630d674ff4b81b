"""Get in the line of a lock, wait, and leave it: what locks, semaphores and elections have in common.

Invariant: nothing stays behind of a call that was cancelled, timed out or failed. Its place is given back by the
keeper's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, TypeVar

from pgsched.db.queries.recipes import locks
from pgsched.db.queries.recipes.locks import Answer
from pgsched.errors import InputError, LeaseLost, LockTimeout, WaitCancelled
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.sessions.places import Place
from pgsched.recipes.sessions.repeating import repeat, repeat_async
from pgsched.recipes.sessions.session import CLOSED, left_s, now
from pgsched.recipes.values import LONGEST_WAIT_S, Seconds, check_name, check_note, check_ttl, check_wait

TAKEN = "the lock may have been taken: it is given back"
T = TypeVar("T")
Mode = Literal["exclusive", "shared"]


class Given:
    """The type of `AS_GIVEN`."""


AS_GIVEN: Final = Given()  # the timeout that the handle was made with


class ThreadWaker:
    """Lets a thread go on."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        """Let it go on."""
        self._event.set()

    def is_gone(self) -> bool:
        """Return False: a thread leaves the line before it ends."""
        return False

    def wait(self, seconds: float) -> None:
        """Wait until `wake` is called, at most so long."""
        self._event.wait(seconds)
        self._event.clear()


class LoopWaker:
    """Lets a task of the running event loop go on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Let it go on."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._event.set)

    def is_gone(self) -> bool:
        """Whether the loop was closed: then the task stays where it is."""
        return self._loop.is_closed()

    async def wait(self, seconds: float) -> None:
        """Wait until `wake` is called, at most so long."""
        # in Python 3.11 asyncio.wait_for may swallow a cancellation
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class Attempt:
    """One use of a contender, from the beginning of an acquire to the end of its release.

    `place`: in the line. `granted`: the caller has it.
    """

    def __init__(self) -> None:
        self.place: Place | None = None
        self.granted = False
        self._uses = [self]

    def end(self) -> bool:
        """End it; return False where another thread has ended it."""
        try:
            self._uses.pop()
        except IndexError:
            return False
        return True


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

    _kind: ClassVar[str] = "lock"

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
        self._note = None if note is None else check_note(note)
        self._attempts: dict[int, Attempt] = {}  # by process: a child inherits its parent's
        self._cancelled = False

    def cancel(self) -> None:
        """Let the call that waits in another thread raise WaitCancelled; where none waits, the next one that would.

        What is held already stays so.
        """
        self._cancelled = True
        attempt = self._attempt
        if attempt is not None and attempt.place is not None:
            attempt.place.wake()

    @property
    def _attempt(self) -> Attempt | None:
        """The present attempt: in a child process that has made none, its parent's."""
        return next(reversed(list(self._attempts.values())), None)

    @property
    def _place(self) -> Place | None:
        """The place that was granted; None where nothing is held."""
        attempt = self._attempt
        return attempt.place if attempt is not None and attempt.granted else None

    def _begin(self, attempt: Attempt, timeout: Seconds | Given | None) -> float | None:
        """Take this object for one grant; return until when to wait, on the clock of leases."""
        wait_s = self._timeout_s if isinstance(timeout, Given) else check_wait(timeout)
        pid = os.getpid()
        if self._attempts.setdefault(pid, attempt) is not attempt:
            raise InputError(
                f'lock: this object holds "{self.name}" or waits for it: make another one for a second grant'
            )
        for other in [one for one in self._attempts if one != pid]:
            del self._attempts[other]
        return None if wait_s is None else now() + wait_s

    def _abandon(self, attempt: Attempt) -> None:
        """Let another attempt begin: of this one, which has failed, nothing stays behind."""
        if attempt.place is not None:
            self._keeper.drop(attempt.place)
        self._free(attempt)

    def _free(self, attempt: Attempt) -> None:
        """Let another attempt begin."""
        for pid in [pid for pid, one in list(self._attempts.items()) if one is attempt]:
            del self._attempts[pid]

    def _enter(self, attempt: Attempt, until: float | None) -> None:
        """Get in line and wait, until the place is granted, or the session was lost (see `_conclude`)."""
        ready = ThreadWaker()
        place = attempt.place = Place(self._keeper.session(self._ttl_s), self.name, ready)
        self._keeper.add(place)
        ask, asks = self._asking(place, until), True
        while asks:
            try:
                self._repeat(ask, place, TAKEN)
                break
            except (LeaseLost, LockTimeout) as error:
                asks = self._asks_again(error, place, until)
        while (pause_s := self._pause_s(place, until)) > 0:
            ready.wait(pause_s)
        self._conclude(attempt, until)

    async def _enter_async(self, attempt: Attempt, until: float | None) -> None:
        ready = LoopWaker()
        place = attempt.place = Place(await self._keeper.session_async(self._ttl_s), self.name, ready)
        self._keeper.add(place)
        ask, asks = self._asking(place, until), True
        while asks:
            try:
                await self._repeat_async(ask, place, TAKEN)
                break
            except (LeaseLost, LockTimeout) as error:
                asks = self._asks_again(error, place, until)
        while (pause_s := self._pause_s(place, until)) > 0:
            await ready.wait(pause_s)
        self._conclude(attempt, until)

    def _asking(self, place: Place, until: float | None) -> Callable[[Any], Answer]:
        params = {
            "name": self.name, "token": place.token, "session": place.session.token, "mode": self._mode,
            "capacity": self._capacity, "note": self._note, "kind": self._kind,
        }  # fmt: skip

        def ask(conn: Any) -> Answer:
            # the line is left by itself soon after this call has given up, should it be unable to say so
            wait_s = left_s(until)
            return self._keeper.ask(conn, place, {**params, "wait_s": wait_s and min(LONGEST_WAIT_S, wait_s + 1.0)})

        return ask

    def _asks_again(self, error: LeaseLost | LockTimeout, place: Place, until: float | None) -> bool:
        """Return whether to ask again after this refusal. Raises TimeoutError where the time is over."""
        if isinstance(error, LeaseLost):
            place.session.lose(str(error))
            return False
        if until is not None and until <= now():  # another transaction has locked the line
            raise self._timeout() from error
        return True

    def _pause_s(self, place: Place, until: float | None) -> float:
        """Return for how many seconds to wait; 0 where there is nothing to wait for."""
        if not place.in_line or place.fence is not None or place.lost is not None or self._cancelled:
            return 0.0
        left = place.session.deadline - now()  # the session may be lost although nobody says so
        return max(0.0, left if until is None else min(left, until - now()))

    def _conclude(self, attempt: Attempt, until: float | None) -> None:
        """Take the grant, or leave the line to get in it again, because the session was lost.

        Raises TimeoutError, and WaitCancelled after `cancel` or where the App was closed.
        """
        place = attempt.place
        assert place is not None
        if self._cancelled:
            self._cancelled = False
            raise WaitCancelled(f'the wait for "{self.name}" was cancelled')
        if place.lost is None and place.fence is not None:
            attempt.granted = True
            return
        if place.lost == CLOSED:
            raise WaitCancelled(f'"{self.name}" is not waited for any more: {CLOSED}')
        if place.lost is None or (until is not None and until <= now()):
            raise self._timeout()
        self._keeper.drop(place)
        attempt.place = None

    def _timeout(self) -> TimeoutError:
        return TimeoutError(
            f'"{self.name}" was not acquired in time: others hold it or wait before it; see pgsched lock show'
        )

    def _granted_attempt(self) -> tuple[Attempt, Place]:
        """Return the attempt that holds the lock, and its place. Raises InputError."""
        attempt = self._attempt
        if attempt is None or not attempt.granted or attempt.place is None:
            raise InputError(f'lock: "{self.name}" is not held by this object')
        return attempt, attempt.place

    def _end(self, attempt: Attempt, place: Place) -> GivingBack:
        """End an attempt that holds the lock; return what gives it back.

        Raises LeaseLost where it was lost, and InputError where another thread gives it back.
        """
        if not attempt.end():
            raise InputError(f'lock: "{self.name}" is not held by this object any more')
        self._free(attempt)
        self._keeper.forget(place)
        place.session.losses.tell()
        if place.lost is not None:
            raise place.lost_error()
        return GivingBack(place)

    def _repeat(self, call: Callable[[Any], T], place: Place, maybe: str) -> T:
        return repeat(self._keeper.database, call, place, maybe=maybe)

    async def _repeat_async(self, call: Callable[[Any], T], place: Place, maybe: str) -> T:
        return await repeat_async(self._keeper.database, call, place, maybe=maybe)
