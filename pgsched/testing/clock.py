"""Clocks of tests: `Clock` without a database, `DatabaseClock` with one.

Invariant: time passes only when the test moves the clock, and then for everything that depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pgsched.client.application import App
from pgsched.errors import InputError
from pgsched.testing import database

Span = float | timedelta


def distance(now: datetime, by: Span | None, to: datetime | None) -> timedelta:
    """Return how far to travel.

    Raises InputError unless exactly one of `by` and `to` is given, and for travel back in time.
    """
    if (by is None) == (to is None):
        raise InputError("travel: say either how far, or to when")
    if to is not None and to.utcoffset() is None:
        raise InputError(f"travel: expected a datetime with a time zone, got {to!r}")
    far = to - now if to is not None else by if isinstance(by, timedelta) else timedelta(seconds=by or 0)
    if far < timedelta(0):
        raise InputError(f"travel: {far} is back in time")
    return far


class Clock:
    """A clock that stands still until it travels.

    `listeners` holds functions that are called with the time before and after each travel.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._now = (now or datetime.now(UTC)).astimezone(UTC)
        self.listeners: list[Callable[[datetime, datetime], object]] = []

    def now(self) -> datetime:
        """Return the clock's time, in UTC."""
        return self._now

    def travel(self, by: Span | None = None, *, to: datetime | None = None) -> datetime:
        """Move the clock by seconds or a timedelta, or to a datetime; return its new time, in UTC.

        Raises InputError unless exactly one of `by` and `to` is given, and for travel back in time.
        """
        before = self._now
        self._now = before + distance(before, by, to)
        for tell in self.listeners:
            tell(before, self._now)
        return self._now


class DatabaseClock:
    """The clock of a test that has a database: travel brings everything that waits in the database nearer.

    Delayed runs and retries come due; start deadlines and keys expire. Each slot of a job that passes gets its run.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        """Return the database's time plus all travel, in UTC."""
        return self._app.database.send(None, database.clock) + self._ahead

    def travel(self, by: Span | None = None, *, to: datetime | None = None) -> datetime:
        """Move the clock like `Clock.travel`.

        Raises InputError like `Clock.travel`, and if more than 1000 slots of jobs lie on the way.
        """
        now = self.now()
        far = distance(now, by, to)
        self._app.database.send(None, lambda conn: database.travel(conn, now, far))
        self._ahead += far
        return now + far
