"""The places of a session in the lines of locks: those that it holds, and those that wait.

Invariant: a place whose call may still be under way in the database counts as one that has to be given back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from pgsched.db.queries.recipes import locks
from pgsched.errors import LeaseLost

if TYPE_CHECKING:
    from pgsched.recipes.sessions.session import Session

MARK = 18  # characters of the token, by which notifications name a place
PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.02  # between two looks, though notifications come: anybody may send them


class Pace:
    """How often it is asked for a place. `next_s`: the next pause, where no notifications come.

    `not_before`: not asked before this time, on the clock of leases, however many notifications come.
    """

    def __init__(self) -> None:
        self.next_s = 0.1
        self.not_before = 0.0
        self._looks = 0

    def note_look(self, at: float) -> None:
        """Note that it was asked at this time. The second time may follow at once, later ones only after a pause."""
        self._looks += 1
        pause_s = 0.0 if self._looks < 2 else min(LONGEST_PAUSE_S, PAUSE_S * 2 ** min(self._looks, 10))
        self.not_before = at + pause_s


class Waker(Protocol):
    """Lets the caller of a place go on."""

    def wake(self) -> None:
        """Let it go on."""

    def is_gone(self) -> bool:
        """Whether nobody can go on any more."""


class CallWaker:
    """Makes a call instead: for a place whose caller does not wait."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def wake(self) -> None:
        """Make the call."""
        self._call()

    def is_gone(self) -> bool:
        """Return False: its caller gives it back."""
        return False


class Place:
    """A place in the line of a lock. `token`: names it in the database.

    `in_line`: the database has answered that it is there. `fence`: the number of its grant; None while it waits.
    `look_at`: when to ask for it at the latest, on the clock of leases. `hints`: how often something may have changed.
    `open_calls`: calls for it whose outcome is unknown. `dropped`: its caller has gone away.
    """

    def __init__(self, session: Session, name: str, waker: Waker) -> None:
        self.token = uuid4()
        self.session = session
        self.name = name
        self.in_line = self.dropped = False
        self.fence: int | None = None
        self.look_at = 0.0
        self.pace = Pace()
        self.hints = self.open_calls = 0
        self._taken: str | None = None
        self._waker = waker

    @property
    def mark(self) -> str:
        """The beginning of its token, which notifications have."""
        return str(self.token)[:MARK]

    @property
    def lost(self) -> str | None:
        """Why it is lost; None while it is not."""
        return self._taken or self.session.lost

    @property
    def may_be_there(self) -> bool:
        """Whether the database has it, or may get it by a call that is under way."""
        return self.in_line or self.open_calls > 0

    def granted(self, fence: int) -> None:
        """Note the grant, and let its caller go on."""
        self.fence = fence
        self.wake()

    def take(self, why: str) -> None:
        """Note that it is not there any more."""
        self._taken = self._taken or why
        self.wake()
        self.session.losses.tell()

    def wake(self) -> None:
        """Let its caller go on."""
        self._waker.wake()

    def is_orphan(self) -> bool:
        """Whether its caller can never go on, and has not given it back: its event loop was closed."""
        return self._waker.is_gone()

    def leave(self, conn: Any) -> None:
        """Leave the line, if it is there. Raises the driver's errors."""
        locks.give_back(conn, self.name, self.token)

    def lost_error(self, what: str | None = None, advice: str = "undo what you did under it") -> LeaseLost:
        """Return the error that says that it was lost, why, and what to do.

        `what`: what is lost; None: what has the name.
        """
        what = what or f'"{self.name}"'
        return LeaseLost(f"{what} is not held any more: {self.lost or 'it was given to another'}; {advice}")


class Places:
    """The places of one session. Called while the keeper's lock is held, except for `all`."""

    def __init__(self) -> None:
        self._all: dict[str, Place] = {}
        self._waiting: dict[str, Place] = {}
        self._unchecked: dict[str, Place] = {}  # something may have changed

    def __bool__(self) -> bool:
        return bool(self._all)

    def all(self) -> list[Place]:
        """Return all places."""
        return list(self._all.values())

    def add(self, place: Place) -> None:
        """Take care of a place."""
        self._all[place.mark] = place

    def remove(self, place: Place) -> None:
        """Take care of a place no more."""
        for places in (self._all, self._waiting, self._unchecked):
            places.pop(place.mark, None)

    def wait(self, place: Place, look_at: float) -> None:
        """Note that a place is in line and waits, and when to ask for it at the latest."""
        place.look_at = look_at
        if place.mark in self._all:
            self._waiting[place.mark] = place

    def end_wait(self, place: Place) -> None:
        """Note that a place is granted, or gone."""
        self._waiting.pop(place.mark, None)

    def hint(self, mark: str) -> None:
        """Note that the place with this mark may have changed."""
        if (place := self._all.get(mark)) is not None:
            place.hints += 1
            if place.in_line:
                self._unchecked[mark] = place

    def hint_waiting(self) -> None:
        """Note that all places that are not granted may have changed."""
        for place in self.all():
            if place.fence is None:
                self.hint(place.mark)

    def hint_granted(self) -> None:
        """Note that all places that are granted may have changed."""
        for place in self.all():
            if place.fence is not None:
                self.hint(place.mark)

    def take_due(self, at: float, most: int) -> list[Place]:
        """Return places to be asked for, up to `most`: those that may have changed, and those whose time has come."""
        found = [place for place in list(self._unchecked.values()) if place.pace.not_before <= at][:most]
        for place in found:
            del self._unchecked[place.mark]
        if len(found) < most:
            asked = {*found}
            more = [place for place in list(self._waiting.values()) if place.look_at <= at and place not in asked]
            found += more[: most - len(found)]
        return found

    def next_look_at(self) -> float | None:
        """Return when to ask for a place next, on the clock of leases; None: no place is to be asked for."""
        times = [place.pace.not_before for place in list(self._unchecked.values())]
        times += [place.look_at for place in list(self._waiting.values())]
        return min(times, default=None)
