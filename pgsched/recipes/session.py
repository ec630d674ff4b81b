"""A session of this process, and its places in the lines of locks.

Invariant: a session counts as lost before the database can end it. Its deadline is reckoned from the moment in which
its last renewal was sent, on a clock that goes on while the machine sleeps.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from pgsched.db.queries.recipes import locks
from pgsched.errors import LeaseLost

MARGIN = 0.1  # a part of the ttl, because clocks do not go equally fast
LONGEST_MARGIN_S = 1.0
BEATS = 3  # renewals in a ttl
# While a machine sleeps, CLOCK_MONOTONIC stands still, and the leases in the database go on to their end.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return the seconds on the clock of leases."""
    return time.clock_gettime(CLOCK)


def own_name() -> str:
    """Return the name under which others see the sessions of this process: user@host:pid."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"[:200]


class Session:
    """A session: a lease that this process renews for all that hangs on it.

    `losses`: how often somebody else has taken a place from it. `hints`: how often something may have changed in its
    lines.
    """

    def __init__(self, ttl_s: float) -> None:
        self.token = uuid4()
        self.ttl_s = ttl_s
        self.id = 0  # until it is open
        self.losses = self.hints = 0
        self.places: dict[UUID, Place] = {}
        self.used_at = self.beat_at = now()
        self._deadline = 0.0
        self._lost: str | None = None
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._watchers: set[Callable[[], None]] = set()

    @property
    def channel(self) -> str:
        """The channel on which the database tells of changes in its lines."""
        return f"pgsched_session_{self.id}"

    @property
    def lost(self) -> str | None:
        """Why the session is lost; None while it lives."""
        if self._pid != os.getpid():
            return "this process was forked from the one that has it"
        if self._lost is None and now() >= self._deadline:
            return (
                f"it was not renewed within {self.ttl_s:g} s: the database did not answer, or this process stood still"
            )
        return self._lost

    @property
    def deadline(self) -> float:
        """When it is lost unless it is renewed, on the clock of `now`."""
        return self._deadline

    def renewed(self, sent_at: float) -> None:
        """Reckon the lease from a renewal that was sent at this time. A session that was lost stays so."""
        if self.lost is None or not self._deadline:
            self._deadline = sent_at + self.ttl_s - min(LONGEST_MARGIN_S, MARGIN * self.ttl_s)
            self.beat_at = sent_at + self.ttl_s / BEATS

    def lose(self, why: str) -> None:
        """Note that the session is lost, and wake whoever waits for that."""
        with self._changed:
            self._lost = self._lost or why
        for place in list(self.places.values()):
            place.wake()
        self.tell()

    def tell(self) -> None:
        """Wake those who wait until something is lost, or until there is something in a queue."""
        with self._changed:
            self._changed.notify_all()
        for watcher in list(self._watchers):
            watcher()

    def wait(self, is_over: Callable[[], Any], timeout_s: float | None) -> bool:
        """Wait until `is_over` returns something true, which a loss may change; return False when the time is over."""
        until = None if timeout_s is None else now() + timeout_s
        with self._changed:
            while not is_over():
                left = self._deadline - now() if self._lost is None else 0.05
                if until is not None:
                    left = min(left, until - now())
                    if until <= now():
                        return False
                self._changed.wait(max(0.001, left))
        return True

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each loss and each notification, in the thread that notes it."""
        self._watchers.add(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Call it no more."""
        self._watchers.discard(watcher)


class Place:
    """A place in the line of a lock. `token`: names it in the database.

    `fence`: the number of its grant; None while it waits. `look_at`: when to ask for it at the latest, on the clock of
    `now`. `asked`: the database has answered the call that made it.
    """

    def __init__(self, session: Session, name: str, ready: Callable[[], None]) -> None:
        self.token = uuid4()
        self.session = session
        self.name = name
        self.fence: int | None = None
        self.asked = False
        self.look_at = 0.0
        self.poll_s = 0.1  # the next pause, where no notifications come
        self.hints = session.hints
        self._taken: str | None = None
        self._ready = ready

    @property
    def lost(self) -> str | None:
        """Why it is lost; None while it is not."""
        return self._taken or self.session.lost

    @property
    def waits(self) -> bool:
        """Whether it is in line and waits."""
        return self.asked and self.fence is None and self._taken is None

    def granted(self, fence: int) -> None:
        """Note the grant, and let its caller go on."""
        self.fence = fence
        self.wake()

    def take(self, why: str) -> None:
        """Note that somebody has taken it away."""
        self._taken = self._taken or why
        self.wake()
        self.session.tell()

    def wake(self) -> None:
        """Let its caller go on."""
        self._ready()

    def leave(self, conn: Any) -> None:
        """Give it back, or leave the line."""
        locks.release(conn, self.name, self.token)

    def lost_error(self) -> LeaseLost:
        """Return the error that says that it was lost, and why."""
        return LeaseLost(
            f'"{self.name}" is not held any more: {self.lost or "it was given to another"}; undo what you did under it'
        )
