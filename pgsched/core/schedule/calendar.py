"""The excluded dates of a job, as stretches of real time.

Invariant: a slot on an excluded date of its job does not run. Dates are read in the job's time zone.

A stretch lasts from the first instant of its first date to the first instant after its last date, even where clocks
change at midnight. Where two stretches share a date, the date belongs to the stretch that begins first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

from pgsched.core.schedule import zones

# (first date, last date, reason)
Dates = tuple[date, date, str | None]
DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Part:
    """The instants in (after, until], with the reason why nothing runs in them; None where slots may run."""

    after: datetime
    until: datetime
    excluded: str | None


@dataclass(frozen=True, slots=True)
class Calendar:
    """Stretches of excluded time, disjoint and in order: (begin, end, reason), without the end itself."""

    stretches: tuple[tuple[datetime, datetime, str], ...] = ()

    def excluded(self, instant: datetime) -> str | None:
        """Return why this instant is excluded; None if it is not."""
        found = self._at(instant)
        return found[2] if found else None

    def next_allowed(self, instant: datetime) -> datetime:
        """Return the first instant, this one or later, that is not excluded."""
        while found := self._at(instant):
            instant = found[1]
        return instant

    def parts(self, after: datetime, until: datetime) -> Iterator[Part]:
        """Yield (after, until] in parts, cut where an excluded stretch begins or ends, oldest first."""
        for begins, ends, reason in self.stretches:
            if ends - INSTANT <= after or begins > until:
                continue
            if begins - INSTANT > after:
                yield Part(after, begins - INSTANT, None)
                after = begins - INSTANT
            last = min(ends - INSTANT, until)
            yield Part(after, last, reason)
            after = last
        if after < until:
            yield Part(after, until, None)

    def _at(self, instant: datetime) -> tuple[datetime, datetime, str] | None:
        at = bisect_right(self.stretches, instant, key=lambda stretch: stretch[0]) - 1
        return self.stretches[at] if at >= 0 and instant < self.stretches[at][1] else None


OPEN = Calendar()


def calendar(rows: Iterable[Iterable[Any]] | None, timezone: str) -> Calendar:
    """Return the calendar of a job's rows (first date, last date, reason); dates may be ISO texts."""
    return _calendar(tuple(map(_dates, rows)), timezone) if rows else OPEN


@lru_cache(maxsize=1024)
def _calendar(rows: tuple[Dates, ...], timezone: str) -> Calendar:
    """Return the calendar of sorted, disjoint stretches; calendars with equal rows are built once."""
    tz = zones.zone(timezone)
    stretches: list[tuple[datetime, datetime, str]] = []
    for first, last, reason in sorted(rows, key=lambda row: row[:2]):
        begins, ends = zones.midnight(tz, first), zones.midnight(tz, last + DAY)
        if stretches:
            begins = max(begins, stretches[-1][1])
        if begins < ends:
            stretches.append((begins, ends, describe_dates(first, last, reason)))
    return Calendar(tuple(stretches))


def describe_dates(first: date, last: date, reason: str | None) -> str:
    """Describe an excluded date: `excluded date 2026-12-25: Christmas`."""
    dates = f"excluded date {first}" if first == last else f"excluded dates {first} to {last}"
    return f"{dates}: {reason}" if reason else dates


def _dates(row: Iterable[Any]) -> Dates:
    first, last, reason = row
    return _date(first), _date(last), reason


def _date(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)
