"""Instants, lengths of time and zones, from what pickles.py reads.

Invariant: a zone is an IANA name of pgsched's own tz database, an instant is UTC.

The layout of a pickled datetime is that of Lib/_pydatetime.py (`_getstate`): ten bytes, and the zone if there is one.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from pgsched.core.schedule import zones
from pgsched.errors import ScheduleError
from pgsched.importers.apscheduler.pickles import Known, describe_kind


class NotRead(Exception):
    """A value is not of the kind that its place needs. The text says what it is."""


def read_timedelta(value: Any) -> timedelta:
    """Return a length of time. Raises NotRead."""
    match value:
        case Known(name="datetime.timedelta", args=(int(days), int(seconds), int(microseconds))):
            try:
                return timedelta(days, seconds, microseconds)
            except OverflowError:
                raise NotRead("a length of time that is too long") from None
    raise NotRead(describe_kind(value))


def read_datetime(value: Any) -> datetime | None:
    """Return an instant; None for None. Raises NotRead.

    A wall clock that a zone skips is as long after the gap's begin, as Python has it.
    """
    if value is None:
        return None
    match value:
        case Known(name="datetime.datetime", args=(state, zone)):
            naive, fold = decode_datetime(state)
            try:
                return (naive - find_offset(zone, naive, fold)).replace(tzinfo=UTC)
            except OverflowError:
                raise NotRead("an instant beyond the calendar") from None
        case Known(name="datetime.datetime"):
            raise NotRead("a time without a zone")
    raise NotRead(describe_kind(value))


def decode_datetime(state: Any) -> tuple[datetime, int]:
    """Return the naive wall clock of ten bytes, and its fold. Raises NotRead."""
    data = read_bytes(state)
    if len(data) != 10:
        raise NotRead("a damaged time")
    fold, month = divmod(data[2], 128)
    try:
        naive = datetime(
            data[0] * 256 + data[1], month, data[3], data[4], data[5], data[6], int.from_bytes(data[7:10], "big")
        )
    except ValueError:
        raise NotRead("a damaged time") from None
    return naive, fold


def read_date(value: Any) -> date:
    """Return a date. Raises NotRead."""
    match value:
        case Known(name="datetime.date", args=(state,)):
            data = read_bytes(state)
            try:
                return date(data[0] * 256 + data[1], data[2], data[3])
            except (ValueError, IndexError):
                raise NotRead("a damaged date") from None
    raise NotRead(describe_kind(value))


def read_bytes(value: Any) -> bytes:
    """Return bytes, which the older protocols write as text. Raises NotRead."""
    match value:
        case bytes():
            return value
        case Known(name="_codecs.encode", args=(str(text), "latin1" | "latin-1")):
            value = text
    if isinstance(value, str):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            pass
    raise NotRead(describe_kind(value))


def read_zone(value: Any) -> str:
    """Return the IANA name of a zone. Raises NotRead for one without a name.

    A fixed offset of whole hours is one of `Etc/GMT-14` to `Etc/GMT+12`, whose signs are turned round.
    """
    offset = fixed_offset(value)
    if offset is not None:
        hours, fraction = divmod(offset, timedelta(hours=1))
        if fraction or not -12 <= hours <= 14:
            raise NotRead(f"the fixed offset {offset}")
        return f"Etc/GMT{-hours:+d}" if hours else "UTC"
    match value:
        case Known(name="zoneinfo.ZoneInfo" | "zoneinfo.ZoneInfo._unpickle" | "pytz._p", args=(str(name), *_)):
            try:
                return zones.zone(name).key or name
            except ScheduleError as error:
                raise NotRead(f"a zone that is not known: {error.reason}") from None
        case str(name):  # a state of APScheduler 3.0
            return read_zone(Known("zoneinfo.ZoneInfo", (name,)))
    raise NotRead(describe_kind(value))


def fixed_offset(value: Any) -> timedelta | None:
    """Return the offset of a zone that has only one; None for others."""
    match value:
        case Known(name="pytz._UTC"):
            return timedelta(0)
        case Known(name="pytz.FixedOffset", args=(int(minutes), *_)) if abs(minutes) < 1440:
            return timedelta(minutes=minutes)
        case Known(name="datetime.timezone", args=(length, *_)):
            return read_timedelta(length)
    return None


def find_offset(zone: Any, naive: datetime, fold: int) -> timedelta:
    """Return the offset of a zone at a wall clock. Raises NotRead.

    pytz has one object for each offset of a zone, so the offset stands in the pickle.
    """
    fixed = fixed_offset(zone)
    if fixed is not None:
        return fixed
    match zone:
        case Known(name="pytz._p", args=(str(), int(seconds), *_)) if abs(seconds) < 86_400:
            return timedelta(seconds=seconds)
    return zones.offset(zones.zone(read_zone(zone)), naive, fold)
