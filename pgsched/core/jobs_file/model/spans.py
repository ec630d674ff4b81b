"""Lengths of time as PostgreSQL's intervals have them: months, days, and the rest.

Invariant: two lengths are equal if PostgreSQL's `=` finds their intervals equal: a month has 30 days, a day 24 hours
(https://www.postgresql.org/docs/current/datatype-datetime.html#DATATYPE-INTERVAL-INPUT). So a file and a database agree
about what differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from pgsched.core.schedule.time_words import UNITS
from pgsched.core.units import format_count

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000  # microseconds
MONTH = 30 * DAY
MICROSECONDS = {"milliseconds": 1000, "seconds": SECOND, "minutes": MINUTE, "hours": HOUR}
MONTHS = {"mon": 1, "mons": 1, "month": 1, "months": 1, "y": 12, "year": 12, "years": 12}
LONGEST_TEXT = 100
PIECE = re.compile(r"([-+]?)(\d{1,12})(?:\.(\d{1,6}))? *([a-z]+) *", re.ASCII)
CLOCK = re.compile(r"([-+]?)(\d{1,12}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?", re.ASCII)
PLAIN = re.compile(r"\d{1,9}(\.\d{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """A length of time, with the parts that an interval has."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    @property
    def total(self) -> int:
        """The length in microseconds, as PostgreSQL compares intervals."""
        return self.months * MONTH + self.days * DAY + self.microseconds

    @property
    def delta(self) -> timedelta:
        """The length as a timedelta, with months of 30 days."""
        return timedelta(microseconds=self.total)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Span) and self.total == other.total

    def __hash__(self) -> int:
        return hash(self.total)

    def __str__(self) -> str:
        parts: list[str] = [
            text
            for count, unit in ((self.months // 12, "year"), (self.months % 12, "month"), (self.days, "day"))
            if count
            for text in [format_count(count, unit)]
        ]
        if self.microseconds or not parts:
            parts += _clock_parts(self.microseconds)
        return " ".join(parts)


def _clock_parts(microseconds: int) -> list[str]:
    """Return hours, minutes and seconds as words, with the sign at each; a whole number of one unit stays one part."""
    sign, left = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    parts: list[str] = []
    for size, unit in ((HOUR, "hour"), (MINUTE, "minute")):
        if size == MINUTE and left % MINUTE and not parts and left < 100 * SECOND:
            continue  # 90 seconds
        if left >= size:
            parts.append(sign + format_count(left // size, unit))
            left %= size
    if left or not parts:
        whole, fraction = divmod(left, SECOND)
        number = f"{whole}.{fraction:06d}".rstrip("0").rstrip(".")
        parts.append(f"{sign}{number} second{'' if number == '1' else 's'}")
    return parts


def read_span(text: str) -> Span | None:
    """Return the length that a text says: `90s`, `1h 30m`, `2 hours`, `1 mon 3 days 04:05:06`, a number of seconds.

    None for any other text.
    """
    words = " ".join(text.lower().split())
    if not words or len(words) > LONGEST_TEXT:
        return None
    if PLAIN.fullmatch(words):
        return Span(microseconds=_fraction(words) if "." in words else int(words) * SECOND)
    found, at = Span(), 0
    while at < len(words):
        if clock := CLOCK.match(words, at):
            more = _clock_span(clock)
            at = clock.end() + (words[clock.end() : clock.end() + 1] == " ")
        elif (piece := PIECE.match(words, at)) and (unit_span := _piece_span(piece)) is not None:
            more, at = unit_span, piece.end()
        else:
            return None
        found = Span(found.months + more.months, found.days + more.days, found.microseconds + more.microseconds)
    return found


def _clock_span(clock: re.Match[str]) -> Span:
    """Return the length of `04:05:06.5`."""
    seconds = int(clock[2]) * 3600 + int(clock[3]) * 60 + int(clock[4] or 0)
    total = seconds * SECOND + int((clock[5] or "").ljust(6, "0"))
    return Span(microseconds=-total if clock[1] == "-" else total)


def _piece_span(piece: re.Match[str]) -> Span | None:
    """Return the length of a number and a unit; None for an unknown unit, and for a fraction but of seconds."""
    sign, unit = -1 if piece[1] == "-" else 1, UNITS.get(piece[4])
    number = sign * int(piece[2])
    if piece[3] is not None:
        fraction = sign * _fraction(f"{piece[2]}.{piece[3]}")
        return Span(microseconds=fraction) if unit == "seconds" else None
    if unit in MICROSECONDS:
        return Span(microseconds=number * MICROSECONDS[unit])
    if unit in {"days", "weeks"}:
        return Span(days=number * (7 if unit == "weeks" else 1))
    return Span(months=number * MONTHS[piece[4]]) if piece[4] in MONTHS else None


def _fraction(text: str) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole) * SECOND + int(fraction.ljust(6, "0"))


def span_of(seconds: float | timedelta) -> Span:
    """Return the length of a number of seconds."""
    if isinstance(seconds, timedelta):
        return Span(microseconds=seconds // timedelta(microseconds=1))
    return Span(microseconds=round(seconds * SECOND))
