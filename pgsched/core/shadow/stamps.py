"""Read the times of log lines: `Nov 28 00:17:01`, ISO 8601, seconds since 1970.

Invariant: a wall clock is read in the zone that was named, never in that of this host.

RFC 3164 writes neither year nor zone ("4.1.2 HEADER Part of a syslog Packet"). The year is the last one in which that
time is not in the future. A wall clock that comes twice is the first pass, unless the line before it is later, or the
same work has started in the same minute before.
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
MOST_NOTED = 100_000  # works in an hour that comes twice
OLD = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(\.\d{1,9})?", re.ASCII)
OFFSET = r"(?: ?(?:Z|UTC|[+-]\d\d(?::?\d\d)?))?"
ISO = re.compile(rf"\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{{1,9}})?)?{OFFSET}", re.ASCII)
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
        self._ahead_s = 0.0  # from the wall clock that was read last to its second pass; 0: it has none, or is it
        self._minutes: dict[str, float] = {}  # by work: its last minute that comes twice

    @property
    def may_repeat(self) -> bool:
        """Whether the wall clock that was read last comes once more."""
        return self._ahead_s > 0

    def read_start(self, text: str, what: str) -> float | None:
        """Return the seconds since 1970 of a start of some work; None for what is no time."""
        at_s = self.read(text)
        if at_s is None or not self._ahead_s:
            return at_s
        minute_s = at_s // 60 * 60
        if self._minutes.get(what) == minute_s:
            ahead_s, self._ahead_s = self._ahead_s, 0.0
            self._minute_s, self._last_s = self._minute_s + ahead_s, self._last_s + ahead_s
            return at_s + ahead_s
        if len(self._minutes) < MOST_NOTED:
            self._minutes[what] = minute_s
        return at_s

    def read(self, text: str) -> float | None:
        """Return the seconds since 1970 of a time; None for any other text."""
        if text[:1].isalpha():
            return self._read_old(text)
        if found := NUMBER.fullmatch(text):
            self._ahead_s = 0.0
            seconds, part, milliseconds, microseconds = found.groups()
            if seconds:
                return float(seconds + (part or ""))
            return float(milliseconds) / 1e3 if milliseconds else float(microseconds) / 1e6
        return self._read_iso(text)

    def _read_iso(self, text: str) -> float | None:
        self._ahead_s = 0.0
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
        is_second = first < self._last_s - BACKWARDS_S and second > first
        self._last_s = second if is_second else first
        self._ahead_s = 0.0 if is_second else max(second - first, 0.0)
        return self._last_s
