"""The rule: time passes in a test only when the test says so, and then for everything that waits for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pgsched.client.application import App
from pgsched.errors import InputError
from pgsched.testing import database

Span = float | timedelta


def span(now: datetime, by: Span | None, to: datetime | None) -> timedelta:
    """How far to travel. Raises InputError for a way back, or none."""
    if (by is None) == (to is None):
        raise InputError("travel: say either how far, or to when")
    if to is not None and to.utcoffset() is None:
        raise InputError(f"travel: expected a datetime with a time zone, got {to!r}")
    far = to - now if to is not None else by if isinstance(by, timedelta) else timedelta(seconds=by or 0)
    if far < timedelta(0):
        raise InputError(f"travel: {far} is back in time")
    return far


class Clock:
    """A clock that stands still until it is told to travel. `passed` is told of the instants before and after."""

    def __init__(self, now: datetime | None = None) -> None:
        self._now = (now or datetime.now(UTC)).astimezone(UTC)
        self.passed: list[Callable[[datetime, datetime], object]] = []

    def now(self) -> datetime:
        """The clock's time, in UTC."""
        return self._now

    def travel(self, by: Span | None = None, *, to: datetime | None = None) -> datetime:
        """Go on by seconds or a timedelta, or to an instant; returns the time that it is then. Raises InputError."""
        before = self._now
        self._now = before + span(before, by, to)
        for tell in self.passed:
            tell(before, self._now)
        return self._now


class DatabaseClock:
    """The clock of a test that has a database: to travel moves everything that waits nearer by as much.

    Delayed runs and retries come due, start deadlines and keys expire; each slot of a job that is passed gets its run.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        """The database's time and what was travelled, in UTC."""
        return self._app.database.send(None, database.clock) + self._ahead

    def travel(self, by: Span | None = None, *, to: datetime | None = None) -> datetime:
        """As `Clock.travel`."""
        now = self.now()
        far = span(now, by, to)
        self._app.database.send(None, lambda conn: database.travel(conn, now, far))
        self._ahead += far
        return now + far
