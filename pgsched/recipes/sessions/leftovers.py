"""Places that have to be given back because their callers could not: calls that were cancelled, timed out or failed.

Invariant: a place is given back again until no call for it can be under way any more. A call whose answer was lost may
still wait in the server for the line's row, and get a place after it was given back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pgsched.recipes.sessions.places import Place
from pgsched.recipes.sessions.session import now

# Before it is given back again: in sum longer than the server works at a statement (its statement_timeout).
PAUSES_S = (0.5, 2.0, 10.0, 25.0)
FAILED_S = 0.5  # before it is tried again


@dataclass(eq=False)
class Leftover:
    """A place to be given back, and when. `pauses`: before it is given back again."""

    place: Place
    pauses: list[float]
    due_at: float = field(default_factory=now)


class Leftovers:
    """The places that are to be given back. Called while the keeper's lock is held."""

    def __init__(self) -> None:
        self._all: list[Leftover] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, place: Place) -> None:
        """Give this place back as soon as possible, and again where its calls may still be under way."""
        self._all.append(Leftover(place, list(PAUSES_S) if place.open_calls else []))

    def due(self, most: int) -> list[Leftover]:
        """Return those whose time has come, up to `most`."""
        at = now()
        self._all = [one for one in self._all if one.place.session.lost is None]  # the others went with their sessions
        return [one for one in self._all if one.due_at <= at][:most]

    def succeed(self, one: Leftover) -> None:
        """Note that it was given back."""
        if one.pauses:
            one.due_at = now() + one.pauses.pop(0)
        elif one in self._all:
            self._all.remove(one)

    def fail(self, one: Leftover) -> None:
        """Note that it could not be given back now. The others are tried before it is tried again."""
        one.due_at = now() + FAILED_S
        if one in self._all:
            self._all.remove(one)
            self._all.append(one)

    def next_at(self) -> float | None:
        """Return when the next one is due, on the clock of leases; None: there is none."""
        return min((one.due_at for one in self._all), default=None)
