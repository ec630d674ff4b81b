"""Convert between wall clocks and instants in IANA time zones.

Invariant: wall clocks are naive, instants are UTC, and only this module converts between them.

All processes use one tz database, the `tzdata` package. `ZoneInfo(name)` would prefer the host's zone files, and
leaders on hosts with different files would compute different slots. A zone name is an IANA name in its exact spelling.

At a gap or a repeated hour, the offsets on both sides are known. The instant of the change is found by bisection,
because `zoneinfo` does not provide it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from itertools import pairwise
from zoneinfo import ZoneInfo

from pgsched.core.text import did_you_mean
from pgsched.errors import ScheduleError

DAY, SECOND, MICROSECOND = timedelta(days=1), timedelta(seconds=1), timedelta(microseconds=1)
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Change:
    """The instant at which a zone's offset changes, with the wall clocks just before and after."""

    at: datetime
    before: datetime
    after: datetime


def tzdata_version() -> str:
    """Return the release of the tz database that all slots are computed with, for example 2026a."""
    return str(import_module("tzdata").IANA_VERSION)


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """Return every zone name of the tz database.

    Read from its list, not from the file names: some file systems would also find `europe/berlin`.
    """
    return frozenset((files("tzdata") / "zones").read_text(encoding="ascii").split())


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """Return the zone with an IANA name. Raises ScheduleError."""
    if not _PRINTABLE.fullmatch(name):
        raise ScheduleError("timezone", "only printable ASCII is accepted")
    # The list also excludes other files that would be found: localtime, posix/, right/, tzdata.zi, absolute paths.
    if name not in names():
        raise ScheduleError("timezone", f'"{name[:64]}" is not a known IANA zone{did_you_mean(name, names())}')
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def wall_clock_at(tz: ZoneInfo, instant: datetime) -> datetime:
    """Return the naive wall clock at an instant; `fold` is 1 in the second pass of a repeated hour."""
    return instant.astimezone(tz).replace(tzinfo=None)


def offset(tz: ZoneInfo, naive: datetime, fold: int) -> timedelta:
    """Return the zone's UTC offset at a wall clock; `fold` 1 means the second pass of a repeated hour."""
    found = naive.replace(tzinfo=tz, fold=fold).utcoffset()
    assert found is not None
    return found


def instant_of(naive: datetime, utc_offset: timedelta) -> datetime:
    """Return the instant of a wall clock with a given UTC offset."""
    return (naive - utc_offset).replace(tzinfo=UTC, fold=0)


def change_at(tz: ZoneInfo, naive: datetime) -> Change | None:
    """Return the change that skips or repeats this wall clock; None for an ordinary one."""
    earlier, later = offset(tz, naive, 0), offset(tz, naive, 1)
    if earlier == later:
        return None
    low, high = sorted((instant_of(naive, earlier), instant_of(naive, later)))
    return _bisect(tz, low, high)


def midnight(tz: ZoneInfo, day: date) -> datetime:
    """Return the first instant of a date.

    If the date begins in a gap, or lies inside one, that is the first instant after the gap.
    """
    return instant_at(tz, datetime.combine(day, time()))


def instant_at(tz: ZoneInfo, naive: datetime) -> datetime:
    """Return the instant of a wall clock: of one that occurs twice its first pass, of one in a gap the gap's end."""
    change = change_at(tz, naive)
    if change is not None and change.after > change.before:
        return change.at
    return instant_of(naive, offset(tz, naive, 0))


def last_wall_reached(tz: ZoneInfo, instant: datetime) -> datetime:
    """Return the latest wall clock whose `instant_at` is not after an instant."""
    naive = wall_clock_at(tz, instant)
    change = change_at(tz, naive) if naive.fold else None
    return change.before - MICROSECOND if change is not None else naive


def instants_between(tz: ZoneInfo, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Return the instants whose wall clock lies in [start, end), as stretches [from, until), oldest first.

    The offset is the same within a stretch. So a stretch ends where clocks change, and wall clocks that occur twice
    lie in two stretches.
    """
    offsets = {offset(tz, naive, fold) for naive in (start, end) for fold in (0, 1)}
    if len(offsets) == 1:
        (only,) = offsets
        return [(instant_of(start, only), instant_of(end, only))]
    since, until = instant_of(start, max(offsets)), instant_of(end, min(offsets))
    cuts = [since, *(change.at for change in changes(tz, since, until)), until]
    found: list[tuple[datetime, datetime]] = []
    for low, high in pairwise(cuts):
        ahead = wall_clock_at(tz, low) - low.replace(tzinfo=None)
        begins, ends = max(low, instant_of(start, ahead)), min(high, instant_of(end, ahead))
        if begins < ends:
            found.append((begins, ends))
    return found


@lru_cache(maxsize=4096)
def gaps_of_year(tz: ZoneInfo, year: int) -> tuple[Change, ...]:
    """Return the changes of a year, by the wall clock after them, that skip wall clocks."""
    start, end = datetime(year, 1, 1, tzinfo=UTC) - 2 * DAY, datetime(year, 12, 31, tzinfo=UTC) + 3 * DAY
    return tuple(
        change for change in changes(tz, start, end) if change.after > change.before and change.after.year == year
    )


def changes(tz: ZoneInfo, start: datetime, end: datetime) -> Iterator[Change]:
    """Yield the offset changes at instants in (start, end], checking one day at a time."""
    while start < end:
        stop = min(start + DAY, end)
        if start.astimezone(tz).utcoffset() != stop.astimezone(tz).utcoffset():
            yield _bisect(tz, start, stop)
        start = stop


def _bisect(tz: ZoneInfo, low: datetime, high: datetime) -> Change:
    """Return the offset change between two instants, which lie on both sides of it."""
    low, high = low.replace(microsecond=0), high + timedelta(microseconds=-high.microsecond % 1_000_000)
    before = low.astimezone(tz).utcoffset()
    while high - low > SECOND:
        middle = low + timedelta(seconds=(high - low) // SECOND // 2)
        if middle.astimezone(tz).utcoffset() == before:
            low = middle
        else:
            high = middle
    after = high.astimezone(tz).utcoffset()
    assert before is not None and after is not None
    naive = high.replace(tzinfo=None)
    return Change(high, naive + before, naive + after)
