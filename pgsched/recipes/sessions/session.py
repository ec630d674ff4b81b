"""A session of this process: a lease that it renews for all that hangs on it.

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
from uuid import uuid4

from pgsched.recipes.sessions.places import Places

MARGIN = 0.1  # a part of the ttl, because clocks do not go equally fast
LONGEST_MARGIN_S = 1.0
BEATS = 3  # renewals in a ttl
# While a machine sleeps, CLOCK_MONOTONIC stands still, and the leases in the database go on to their end.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
CLOSED = "the App was closed"
LONGEST_LOOK_S = 30.0


def now() -> float:
    """Return the seconds on the clock of leases."""
    return time.clock_gettime(CLOCK)


def left_s(until: float | None) -> float | None:
    """Return the seconds until this time on the clock of leases, 0 when it is over; None where there is no limit."""
    return None if until is None else max(0.0, until - now())


def own_name() -> str:
    """Return the name under which others see the sessions of this process: user@host:pid."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"[:200]


class Losses:
    """Wakes those who wait until something of a session is lost or given back."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watchers: set[Callable[[], None]] = set()

    def tell(self) -> None:
        """Wake them."""
        with self._changed:
            self._changed.notify_all()
        for watcher in list(self._watchers):
            watcher()

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each loss, in the thread that notes it."""
        self._watchers.add(watcher)

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        """Call it no more."""
        self._watchers.discard(watcher)

    def wait(self, is_over: Callable[[], Any], pause_s: Callable[[], float], timeout_s: float | None) -> bool:
        """Wait until `is_over` returns something true, which a loss may change; return False when the time is over.

        `pause_s`: returns after how many seconds to look again, because the clock alone may have changed it.
        """
        until = None if timeout_s is None else now() + timeout_s
        with self._changed:
            while not is_over():
                left = pause_s()
                if until is not None:
                    left = min(left, until - now())
                    if until <= now():
                        return False
                self._changed.wait(max(0.001, left))
        return True


class Session:
    """A session: a lease that this process renews for all that hangs on it.

    `losses_seen`: how many grants somebody had taken from it at its last renewal. `used_at`, `beat_at`: when it was
    last used, and when it is to be renewed next, on the clock of `now`.
    """

    def __init__(self, ttl_s: float) -> None:
        self.token = uuid4()
        self.ttl_s = ttl_s
        self.id = 0  # until it is open
        self.losses_seen = 0
        self.places = Places()
        self.used_at = self.beat_at = now()
        self.losses = Losses()
        self._deadline = 0.0
        self._lost: str | None = None
        self._pid = os.getpid()

    @property
    def channel(self) -> str:
        """The channel on which the database tells of changes in its lines."""
        return f"pgsched_session_{self.id}"

    @property
    def is_parents(self) -> bool:
        """Whether it is the session of the process from which this one was forked."""
        return self._pid != os.getpid()

    @property
    def lost(self) -> str | None:
        """Why the session is lost; None while it lives."""
        if self.is_parents:
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
        self._lost = self._lost or why
        for place in self.places.all():
            place.wake()
        self.losses.tell()

    def longest_look_s(self) -> float:
        """Return after how many seconds to ask for a place at the latest: those who stood before it may have left."""
        return min(self.ttl_s / 3, LONGEST_LOOK_S)

    def pause_s(self) -> float:
        """Return after how many seconds to look whether it is lost: nobody may tell."""
        return self._deadline - now() if self._lost is None else 0.05
