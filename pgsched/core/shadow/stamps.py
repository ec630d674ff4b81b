"""Read the times of log lines: `Nov 28 00:17:01`, ISO 8601, seconds since 1970.

Invariant: a wall clock is read in the zone that was named, never in that of this host.

RFC 3164 writes neither year nor zone ("4.1.2 HEADER Part of a syslog Packet"). The year is the last one in which that
time is not in the future. A wall clock that comes twice is the first pass, unless the line before it is later.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHS = {name: n for n, name in enumerate(NAMES, 1)}
AHEAD = timedelta(days=1)  # a host's clock or zone may be wrong by that much
YEARS = 8  # the longest time between two leap days
BACKWARDS_S = 600.0  # lines of different processes may be out of order by that much
LATEST_S = 2.2e11  # in the year 8941
OLD = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(\.\d{1,9})?", re.ASCII)
ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?", re.ASCII)
SPACE_OF_ZONE = re.compile(r" ?(UTC|Z|[+-][\d:]+)$", re.ASCII)
ZULU = {"UTC": "+00:00", "Z": "+00:00"}
NUMBER = re.compile(r"(\d{9,11})(\.\d{1,9})?|(\d{12,14})|(\d{15,17})", re.ASCII)


class StampReader:
    """Reads the times of one log, line after line.

    `now`: the present, for years. `zone`: of wall clocks without an offset.
    """

    def __init__(self, now: datetime, zone: tzinfo) -> None:
        self._latest = now.astimezone(zone).replace(tzinfo=None) + AHEAD
        self._zone = zone
        self._minute = ""
        self._minute_s = 0.0
        self._last_s = 0.0

    def read(self, text: str) -> float | None:
        """Return the seconds since 1970 of a time; None for any other text."""
        if text[:1].isalpha():
            return self._read_old(text)
        if found := NUMBER.fullmatch(text):
            seconds, part, milliseconds, microseconds = found.groups()
            if seconds:
                return float(seconds + (part or ""))
            return float(milliseconds) / 1e3 if milliseconds else float(microseconds) / 1e6
        return self._read_iso(text)

    def _read_iso(self, text: str) -> float | None:
        if not ISO.fullmatch(text):
            return None
        try:
            found = datetime.fromisoformat(
                SPACE_OF_ZONE.sub(lambda one: ZULU.get(one[1], one[1]), text.replace(",", "."))
            )
            seconds = self._seconds(found) if found.tzinfo is None else found.timestamp()
        except (ValueError, OverflowError):
            return None
        return seconds if 0 <= seconds < LATEST_S else None

    def _read_old(self, text: str) -> float | None:
        found = OLD.fullmatch(text)
        if found is None:
            return None
        month, day, hour, minute, second, part = found.groups()
        seconds = min(int(second), 59) + float(part or 0)  # a leap second is the last one of its minute
        if (same := text[:12]) != self._minute:
            begun = self._minute_of(month, int(day), int(hour), int(minute))
            if begun is None:
                return None
            self._minute, self._minute_s = same, begun
        return self._minute_s + seconds

    def _minute_of(self, month: str, day: int, hour: int, minute: int) -> float | None:
        """Return the seconds since 1970 of a minute of the last year that has it; None for a time that there is not."""
        if month not in MONTHS:
            return None
        for year in range(self._latest.year, self._latest.year - YEARS - 1, -1):
            try:
                wall = datetime(year, MONTHS[month], day, hour, minute)
            except ValueError:
                continue
            if wall <= self._latest:
                return self._seconds(wall)
        return None

    def _seconds(self, wall: datetime) -> float:
        first, second = (wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC).timestamp() for fold in (0, 1))
        self._last_s = second if first < self._last_s - BACKWARDS_S and second > first else first
        return self._last_s
