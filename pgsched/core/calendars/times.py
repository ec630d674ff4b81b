"""The times of a shared calendar, as people type and read them: `2026-12-25`, `sat,sun`, `mon-fri 18:00-24:00`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from pgsched.core.input_values import parse_dates
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

Value = TypeVar("Value")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LONG_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
CLOCK = r"(?:[01]\d|2[0-4]):[0-5]\d(?::[0-5]\d)?"
HOURS = re.compile(rf"({CLOCK})-({CLOCK})", re.ASCII)
UNDERSTOOD = "2026-12-25, 2026-12-24..2026-12-26, sat,sun, mon-fri, 18:00-24:00, and these together"


@dataclass(frozen=True, slots=True)
class CalendarTime:
    """A time that a calendar excludes: the columns of `calendar_times`.

    `weekdays`: Sunday is 0. `from_time`, `until_time`: texts such as `18:00`; the second one is not excluded.
    """

    from_date: date | None = None
    until_date: date | None = None
    weekdays: tuple[int, ...] | None = None
    from_time: str | None = None
    until_time: str | None = None
    reason: str | None = None


def parse_calendar_time(words: Iterable[str], reason: str | None = None) -> CalendarTime:
    """Return the time that words name together: dates, weekdays and hours, each at most once. Raises InputError."""
    dates: tuple[date, date] | None = None
    weekdays: tuple[int, ...] | None = None
    hours: tuple[str, str] | None = None
    for word in words:
        if found := HOURS.fullmatch(word):
            hours = refuse_second(hours, (found[1], found[2]), word)
            if not pad_clock(found[1]) < pad_clock(found[2]) <= "24:00:00":
                raise InputError(f'time: "{word}" does not end later than it begins, until 24:00 at the latest', "time")
        elif word[:1].isdigit():
            dates = refuse_second(dates, parse_dates(word), word)
        else:
            weekdays = refuse_second(weekdays, parse_weekdays(word), word)
    if dates is None and weekdays is None and hours is None:
        raise InputError(f"time: is missing; understood are {UNDERSTOOD}", "time")
    first, last = dates or (None, None)
    begin, end = hours or (None, None)
    return CalendarTime(first, last, weekdays, begin, end, reason)


def parse_weekdays(text: str) -> tuple[int, ...]:
    """Return the weekdays that a text names: `sat,sun` or `mon-fri`, Sunday as 0. Raises InputError."""
    found: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = part.partition("-")
        begin, end = weekday(first, text), weekday(last if dash else first, text)
        found |= {(begin + n) % 7 for n in range((end - begin) % 7 + 1)}
    return tuple(sorted(found))


def weekday(word: str, text: str) -> int:
    """Return the number of a weekday, Sunday as 0. Raises InputError; `text` is what was typed."""
    for names in (DAYS, LONG_DAYS):
        if word in names:
            return names.index(word)
    hint = did_you_mean(word, DAYS)
    raise InputError(f'time: "{text[:100]}" is not understood{hint}; understood are {UNDERSTOOD}', "time")


def describe_time(time: CalendarTime) -> str:
    """Return a time as it is typed."""
    words = []
    if time.from_date is not None:
        words.append(f"{time.from_date}" + (f"..{time.until_date}" if time.until_date != time.from_date else ""))
    if time.weekdays is not None:
        words.append(",".join(DAYS[day] for day in sorted(time.weekdays)))
    if time.from_time is not None and time.until_time is not None:
        words.append(f"{shorten_clock(time.from_time)}-{shorten_clock(time.until_time)}")
    return " ".join(words)


def is_same_time(one: CalendarTime, other: CalendarTime) -> bool:
    """Check whether two entries exclude the same time, whatever their reasons are."""
    return describe_time(one) == describe_time(other)


def pad_clock(text: str) -> str:
    """Return a time of the day with its seconds: `18:00:00`."""
    return text if text.count(":") == 2 else f"{text}:00"


def shorten_clock(text: str) -> str:
    """Return a time of the day without seconds where they are zero: `18:00`."""
    return pad_clock(text).removesuffix(":00")


def refuse_second(first: Value | None, second: Value, word: str) -> Value:
    """Return the second value. Raises InputError where there is a first one."""
    if first is not None:
        raise InputError(f'time: "{word}" names dates, weekdays or hours a second time', "time")
    return second
