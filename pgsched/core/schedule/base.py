"""The rule: whatever a schedule is made of, its slots are one rising line, and each is asked for by the one before.

`@every` lives here whole: elapsed time from an anchor, which knows no wall clock. `@after` has no slots of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """A parsed schedule. `fixed_delay` is set for `@after` only, which has no slots of its own."""

    expression: str
    timezone: str

    @property
    def fixed_delay(self) -> timedelta | None:
        return None

    @abstractmethod
    def after(self, instant: datetime) -> datetime | None:
        """The first slot strictly after an aware instant, in UTC; None when there is none."""

    @abstractmethod
    def count(self, start: datetime, end: datetime) -> int | None:
        """How many slots lie in (start, end]; None when the stretch is too long to say."""

    def last(self, start: datetime, end: datetime) -> datetime | None:
        """The newest slot in (start, end], by bisection."""
        start, end = utc(start), utc(end)
        newest = self.after(start)
        if newest is None or newest > end:
            return None
        # Slots are whole seconds apart, so the largest offset with a slot still to come in the stretch is enough.
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
        """The slots in (start, end], one at a time."""
        slot = self.after(start)
        while slot is not None and slot <= end:
            yield slot
            slot = self.after(slot)


@dataclass(frozen=True, slots=True)
class Every(Schedule):
    """`@every`: anchor + k x interval, for k = 0, 1, 2, ..."""

    anchor: datetime
    interval: timedelta

    def _index(self, instant: datetime) -> int:
        return max((utc(instant) - self.anchor) // self.interval, -1)

    def after(self, instant: datetime) -> datetime | None:
        try:
            return self.anchor + (self._index(instant) + 1) * self.interval
        except OverflowError:
            return None

    def count(self, start: datetime, end: datetime) -> int:
        return max(self._index(end) - self._index(start), 0)


@dataclass(frozen=True, slots=True)
class After(Schedule):
    """`@after`: a delay after the last run ended, which only its job knows."""

    delay: timedelta

    @property
    def fixed_delay(self) -> timedelta | None:
        return self.delay

    def after(self, instant: datetime) -> datetime | None:
        return None

    def count(self, start: datetime, end: datetime) -> int:
        return 0


def utc(instant: datetime) -> datetime:
    """The instant in UTC; a naive one is a mistake of the caller."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone: schedules work on aware instants")
    return instant.astimezone(UTC)
