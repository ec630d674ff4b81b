"""The rule: wall clocks are naive, instants are UTC, and this module alone crosses between the two.

All processes follow one tz database, the `tzdata` package: `ZoneInfo(name)` would prefer the host's zone files, and two
leaders on hosts of different age would disagree about slots. A zone name is an IANA name in its exact spelling. At a
gap or a repeated hour the offsets on both sides are known, and the instant of the change is found by bisection, because
`zoneinfo` does not tell it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from zoneinfo import ZoneInfo

from pgsched.core.text import did_you_mean
from pgsched.errors import ScheduleError

SECOND = timedelta(seconds=1)
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Change:
    """The instant at which a zone's offset changes, and the wall clock just before and after it."""

    at: datetime
    before: datetime
    after: datetime


def tzdata_version() -> str:
    """The release of the tz database that all slots are computed with, such as 2026a."""
    return str(import_module("tzdata").IANA_VERSION)


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """Every zone of the tz database. A list, not the files: some file systems would find `europe/berlin` too."""
    return frozenset((files("tzdata") / "zones").read_text(encoding="ascii").split())


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The zone of an IANA name, or ScheduleError."""
    if not _PRINTABLE.fullmatch(name):
        raise ScheduleError("timezone", "only printable ASCII is accepted")
    # The list also keeps out what the file system would find: localtime, posix/, right/, tzdata.zi, absolute paths.
    if name not in names():
        raise ScheduleError("timezone", f'"{name[:64]}" is not a known IANA zone{did_you_mean(name, names())}')
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def wall(tz: ZoneInfo, instant: datetime) -> datetime:
    """The naive wall clock at an instant; `fold` is 1 in the second pass of a repeated hour."""
    return instant.astimezone(tz).replace(tzinfo=None)


def offset(tz: ZoneInfo, naive: datetime, fold: int) -> timedelta:
    found = naive.replace(tzinfo=tz, fold=fold).utcoffset()
    assert found is not None
    return found


def instant_of(naive: datetime, utc_offset: timedelta) -> datetime:
    return (naive - utc_offset).replace(tzinfo=UTC, fold=0)


def change_at(tz: ZoneInfo, naive: datetime) -> Change | None:
    """The change that skips or repeats this wall clock, or None for an ordinary one."""
    earlier, later = offset(tz, naive, 0), offset(tz, naive, 1)
    if earlier == later:
        return None
    low, high = sorted((instant_of(naive, earlier), instant_of(naive, later)))
    return _bisect(tz, low, high)


def midnight(tz: ZoneInfo, day: date) -> datetime:
    """The first instant of a date; of one that begins in a gap, or is lost in it, the first instant after the gap."""
    naive = datetime.combine(day, time())
    change = change_at(tz, naive)
    if change is not None and change.after > change.before:
        return change.at
    return instant_of(naive, offset(tz, naive, 0))


def changes(tz: ZoneInfo, start: datetime, end: datetime) -> Iterator[Change]:
    """The offset changes at instants in (start, end], looking once a day."""
    while start < end:
        stop = min(start + timedelta(days=1), end)
        if start.astimezone(tz).utcoffset() != stop.astimezone(tz).utcoffset():
            yield _bisect(tz, start, stop)
        start = stop


def _bisect(tz: ZoneInfo, low: datetime, high: datetime) -> Change:
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
