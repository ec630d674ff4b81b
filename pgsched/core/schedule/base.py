"""The base class of schedules, and the schedules `@every` and `@after`.

Invariant: the slots of a schedule are strictly rising, and each slot is computed from the one before.

`@every` is complete here: elapsed time from an anchor, independent of wall clocks. `@after` has no slots of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pgsched.core.schedule import zones

SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
# How far back the newest slot is searched at first, and how many slots behind it are gone through one by one.
NEAR, FEW = timedelta(minutes=1), 8
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """A parsed schedule."""

    expression: str
    timezone: str

    @property
    def fixed_delay(self) -> timedelta | None:
        """The delay of `@after`; None for all other schedules."""
        return None

    @abstractmethod
    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after an aware instant, in UTC; None when there is none."""

    @abstractmethod
    def count(self, start: datetime, end: datetime) -> int | None:
        """Return how many slots lie in (start, end]; None when the stretch is too long to count."""

    def wall_clock(self, slot: datetime) -> datetime:
        """Return the naive wall clock that names a slot. It differs from the zone's only at the end of a gap."""
        return zones.wall_clock_at(zones.zone(self.timezone), slot)

    def before(self, instant: datetime) -> datetime | None:
        """Return the newest slot strictly before an instant; None when there is none since EARLIEST."""
        end, reach = to_utc(instant) - MICROSECOND, NEAR
        found = None
        while found is None or found > end:
            if end - reach < EARLIEST:
                return self.last(EARLIEST, end)
            found, reach = self.after(end - reach), 8 * reach
        for _ in range(FEW):
            following = self.after(found)
            if following is None or following > end:
                return found
            found = following
        return self.last(found - MICROSECOND, end)

    def last(self, start: datetime, end: datetime) -> datetime | None:
        """Return the newest slot in (start, end], by bisection; None when there is none."""
        start, end = to_utc(start), to_utc(end)
        newest = self.after(start)
        if newest is None or newest > end:
            return None
        # Slots are whole seconds apart. Find the largest offset in seconds after which a slot in the stretch follows.
        low, high = 0, -((start - end) // SECOND)
        while high - low > 1:
            middle = (low + high) // 2
            slot = self.after(start + middle * SECOND)
            if slot is not None and slot <= end:
                low, newest = middle, slot
            else:
                high = middle
        return newest

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the slots in (start, end], oldest first."""
        slot = self.after(start)
        while slot is not None and slot <= end:
            yield slot
            slot = self.after(slot)


@dataclass(frozen=True, slots=True)
class Every(Schedule):
    """`@every`: slots at anchor + k x interval, for k = 0, 1, 2, ..."""

    anchor: datetime
    interval: timedelta

    def _index(self, instant: datetime) -> int:
        return max((to_utc(instant) - self.anchor) // self.interval, -1)

    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after an instant; None beyond the calendar's end."""
        try:
            return self.anchor + (self._index(instant) + 1) * self.interval
        except OverflowError:
            return None

    def before(self, instant: datetime) -> datetime | None:
        """Return the newest slot strictly before an instant; None at the anchor and before it."""
        index = self._index(to_utc(instant) - MICROSECOND)
        return None if index < 0 else self.anchor + index * self.interval

    def count(self, start: datetime, end: datetime) -> int:
        """Return how many slots lie in (start, end]."""
        return max(self._index(end) - self._index(start), 0)


@dataclass(frozen=True, slots=True)
class Once(Schedule):
    """The one slot of a job without a schedule: its run_at."""

    at: datetime

    def after(self, instant: datetime) -> datetime | None:
        """Return the slot, if it lies after the instant."""
        return self.at if self.at > instant else None

    def count(self, start: datetime, end: datetime) -> int:
        """Return how many slots lie in (start, end]: none or one."""
        return int(start < self.at <= end)


@dataclass(frozen=True, slots=True)
class After(Schedule):
    """`@after`: a delay after the last run ended. Only the job knows when that was."""

    delay: timedelta

    @property
    def fixed_delay(self) -> timedelta | None:
        """The delay after the last run ended."""
        return self.delay

    def after(self, instant: datetime) -> datetime | None:
        """Return None: the schedule has no slots of its own."""
        return None

    def count(self, start: datetime, end: datetime) -> int:
        """Return 0: the schedule has no slots of its own."""
        return 0


def to_utc(instant: datetime) -> datetime:
    """Return the instant in UTC. Raises ValueError for a naive datetime, which is a caller's mistake."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone: schedules work on aware instants")
    return instant.astimezone(UTC)
