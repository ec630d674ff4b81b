"""Calls of this process that wait for an item: of one queue and session, only the first of them asks the database.

Invariants: a call that leaves wakes the next one. So whatever was told to the first call is not lost. A token is used
no more after a statement with it whose outcome is unknown. What that has got, or may still get, is given back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from pgsched.db.queries.recipes import items
from pgsched.recipes.sessions.places import CallWaker, Place
from pgsched.recipes.sessions.session import Session, now

# What is put while this session enters the line may not be told to it: so it looks a few times, soon and then later.
PAUSES_S = (0.02, 0.1, 0.5, 2.0)
LONGEST_PAUSE_S = 10.0  # though nothing is told: the process that was told may have died
LONGEST_POLL_S = 1.0  # behind a pooler


class Line:
    """The calls that wait for items of one queue with one session, in their order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Waiting] = []

    def join(self, call: Waiting) -> None:
        """Get in line."""
        with self._lock:
            self._calls.append(call)

    def leave(self, call: Waiting) -> None:
        """Leave the line, and let the next call look."""
        with self._lock, contextlib.suppress(ValueError):
            self._calls.remove(call)
        self.hint()

    def is_first(self, call: Waiting) -> bool:
        """Whether this call is the one that asks the database."""
        with self._lock:
            return bool(self._calls) and self._calls[0] is call

    def hint(self) -> None:
        """Let the first call look."""
        with self._lock:
            first = self._calls[0] if self._calls else None
        if first is not None:
            first.hint()


class Waiting(Place):
    """What one call has got, or waits for: a place that hangs on a session.

    `item_token`: the token of the items in the database. `given_up`: the call has ended, though its statement may go on
    in a thread.
    """

    def __init__(self, session: Session, line: Line, name: str, wake: Callable[[], None]) -> None:
        super().__init__(session, name, CallWaker(wake))
        self._line = line
        self._looks = 0
        self.item_token = uuid4()
        self.given_up = False
        line.join(self)

    @property
    def may_be_there(self) -> bool:
        """Whether there may be something to be given back: always."""
        return True

    def hint(self) -> None:
        """Let the call look: something has changed."""
        self._looks = min(self._looks, 1)
        self.wake()

    def pause_s(self, look_in_s: float | None, listens: bool) -> float | None:
        """Return how long to wait after a look in vain; None: until it is woken.

        `look_in_s`: when the database says to look again. `listens`: notifications come.
        """
        self.pace.note_look(now())
        if not self._line.is_first(self):
            return None
        longest = min(self.session.ttl_s / 3, LONGEST_PAUSE_S if listens else LONGEST_POLL_S)
        pause_s = PAUSES_S[self._looks] if self._looks < len(PAUSES_S) else longest
        self._looks += 1
        return min(longest, pause_s) if look_in_s is None else min(longest, pause_s, max(0.01, look_in_s))

    def least_pause_s(self) -> float:
        """Return the seconds until the next look, though it was woken."""
        return max(0.0, self.pace.not_before - now())

    def end(self) -> None:
        """Wait no longer; the items that it has got stay."""
        self._line.leave(self)

    def change_token(self) -> Place:
        """Take another token; return what is to be given back of the one before, whose statement may go on."""
        late = LateItems(self.session, self._line, self.name, self.item_token)
        self.item_token = uuid4()
        return late

    def leave(self, conn: Any) -> None:
        """Wait no longer, and give back what was got."""
        return_items(conn, self, self.item_token, self._line)


class LateItems(Place):
    """What a statement has got whose outcome is unknown, or may still get: the server may go on with it."""

    def __init__(self, session: Session, line: Line, name: str, item_token: UUID) -> None:
        super().__init__(session, name, CallWaker(line.hint))
        self._line, self._item_token = line, item_token
        self.open_calls = 1  # so it is given back more than once

    def leave(self, conn: Any) -> None:
        """Give back what was got."""
        return_items(conn, self, self._item_token, self._line)


class LeftItem(Place):
    """An item whose caller could neither consume it nor give it back. `call`: gives it back."""

    def __init__(self, place: Place, call: Callable[[Any], object]) -> None:
        super().__init__(place.session, place.name, CallWaker(never))
        self._call = call

    @property
    def may_be_there(self) -> bool:
        """Whether there may be something to be given back: always."""
        return True

    def leave(self, conn: Any) -> None:
        """Give it back."""
        self._call(conn)


def never() -> None:
    """Wake nobody."""


def return_items(conn: Any, place: Place, item_token: UUID, line: Line) -> None:
    """Give back what was got with a token."""
    items.leave(conn, place.name, item_token, place.session.token)
    line.hint()  # the session waits no longer: another call may have begun to wait meanwhile
