"""Read calendar events: the texts of OnCalendar=.

Invariant: what systemd accepts is read as the wall clocks that it means; what it refuses is refused.

The grammar is that of systemd.time(7), "Calendar events": `DOW YEAR-MONTH-DAY HOUR:MINUTE:SECOND ZONE`, each component
a list of values, ranges `a..b` and repetitions `a/n`, or `*`. `~` before the day counts from the end of the month. What
the page leaves open was asked of `systemd-analyze calendar`: a repetition needs room for one more value, and days from
the end of the month are at most 28.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from pgsched.core.schedule import zones

SHORTHANDS = {
    "minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00", "quarterly": "*-01,04,07,10-01 00:00:00", "yearly": "*-01-01 00:00:00",
    **dict.fromkeys(("annually", "anually"), "*-01-01 00:00:00"),
    **dict.fromkeys(("semiannually", "semi-annually", "biannually", "bi-annually"), "*-01,07-01 00:00:00"),
}  # fmt: skip
# systemd's week begins on Monday: a range may end on Sunday.
IN_A_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAY_PART = re.compile(r"([a-z]+(?:(?:,|\.\.|-)[a-z]+)*),?(?:\s+|$)", re.IGNORECASE)
NUMBER = r"\d{1,10}(?:\.\d{1,12})?"
PART = re.compile(rf"({NUMBER})(?:\.\.({NUMBER}))?(?:/({NUMBER}))?")
CHAIN = r"[\d.,/*]+"
DATE = re.compile(rf"(?:({CHAIN})-)?({CHAIN})([-~])({CHAIN})")
TIME = re.compile(rf"({CHAIN}):({CHAIN})(?::({CHAIN}))?")
EPOCH = re.compile(r"@(\d{1,12})")
MICROSECONDS = 1_000_000
LONGEST = 2000
YEARS = range(1970, 2200)


class EventRefused(Exception):
    """systemd does not accept the calendar event."""


class Limits(NamedTuple):
    """The smallest and the largest value of a component. Of seconds in microseconds."""

    low: int
    high: int


YEAR, MONTH, DAY = Limits(YEARS.start, YEARS.stop - 1), Limits(1, 12), Limits(1, 31)
FROM_THE_END, HOUR, MINUTE, SECOND = Limits(1, 28), Limits(0, 23), Limits(0, 59), Limits(0, 60 * MICROSECONDS - 1)


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """A calendar event as sets of values; None is any.

    `weekdays`: 0 is Sunday. `from_the_end`: the days count from the end of the month, 1 is the last one. `seconds`: in
    microseconds. `timezone`: the zone that the text names.
    """

    weekdays: frozenset[int] | None
    years: frozenset[int] | None
    months: frozenset[int] | None
    days: frozenset[int] | None
    from_the_end: bool
    hours: frozenset[int] | None
    minutes: frozenset[int] | None
    seconds: frozenset[int]
    timezone: str | None = None


def parse_event(text: str) -> CalendarEvent:
    """Return a calendar event. Raises EventRefused."""
    if len(text) > LONGEST or not text.strip():
        raise EventRefused(f"{text!r:.80} is no calendar event")
    words, timezone = text.split(), None
    if len(words) > 1 and words[-1] in zones.names():
        timezone = words.pop()
    shown = " ".join(words)
    if match := EPOCH.fullmatch(shown):
        return _at_instant(int(match[1]))
    event = _parse(SHORTHANDS.get(shown.lower(), shown))
    return replace(event, timezone=timezone)


def _parse(text: str) -> CalendarEvent:
    weekdays = None
    left = text
    if (match := WEEKDAY_PART.match(left)) is not None:
        weekdays = _weekdays(match[1])
        left = left[match.end() :]
    words = left.split()
    zero = frozenset({0})
    event = CalendarEvent(weekdays, None, None, None, False, zero, zero, zero)
    if words and (date := DATE.fullmatch(words[0])):
        words.pop(0)
        event = replace(
            event,
            years=None if date[1] is None else _chain(date[1], YEAR),
            months=_chain(date[2], MONTH),
            days=_from_the_end(date[4]) if date[3] == "~" else _chain(date[4], DAY),
            from_the_end=date[3] == "~",
        )
    if words and (time := TIME.fullmatch(words[0])):
        words.pop(0)
        seconds = zero if time[3] is None else _seconds(time[3])
        event = replace(event, hours=_chain(time[1], HOUR), minutes=_chain(time[2], MINUTE), seconds=seconds)
    if words:
        raise EventRefused(f"{text!r:.80} is no calendar event of systemd")
    return event


def _at_instant(seconds: int) -> CalendarEvent:
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise EventRefused(f"@{seconds} is no instant") from None
    one = [frozenset({value}) for value in (at.year, at.month, at.day, at.hour, at.minute, at.second * MICROSECONDS)]
    return CalendarEvent(None, one[0], one[1], one[2], False, one[3], one[4], one[5], "UTC")


def _weekdays(text: str) -> frozenset[int] | None:
    found: set[int] = set()
    for item in text.lower().split(","):
        first, _, last = item.replace("..", "-").partition("-")
        low, high = _weekday(first), _weekday(last or first)
        if low > high:
            raise EventRefused(f"{item}: the week of systemd ends with Sunday")
        found |= {(number + 1) % 7 for number in range(low, high + 1)}
    return None if len(found) == 7 else frozenset(found)


def _weekday(name: str) -> int:
    for number, full in enumerate(IN_A_WEEK):
        if name in (full, full[:3]):
            return number
    raise EventRefused(f"{name!r:.40} is no day of the week")


def _chain(text: str, limits: Limits) -> frozenset[int] | None:
    """Return the values of a component; None for `*`."""
    if text == "*":
        return None
    found: set[int] = set()
    for item in text.split(","):
        low, high, step = _item(item, limits, 1)
        if high is not None:
            found |= set(range(low, high + 1, step or 1))
        elif step is not None:
            if low + step > limits.high:
                raise EventRefused(f"{item!r}: there is no room for the repetition")
            found |= set(range(low, limits.high + 1, step))
        else:
            found.add(low)
    return frozenset(found)


def _from_the_end(text: str) -> frozenset[int] | None:
    """Return how far days are from the end of the month, 1 is the last day; None for `*`.

    A repetition goes to the end of the month.
    """
    if text == "*":
        return None
    found: set[int] = set()
    for item in text.split(","):
        low, high, step = _item(item, FROM_THE_END, 1)
        if step is not None and high is None:
            if low - step < 1:
                raise EventRefused(f"~{item}: there is no room for the repetition")
            found |= set(range(low, 0, -step))
        elif step is not None and step > 1:
            # from the day that is further from the end, as systemd-analyze shows
            found |= set(range(high or low, low - 1, -step))
        else:
            found |= set(range(low, (high or low) + 1))
    return frozenset(found)


def _seconds(text: str) -> frozenset[int]:
    if text == "*":
        return frozenset(range(0, 60 * MICROSECONDS, MICROSECONDS))
    found: set[int] = set()
    for item in text.split(","):
        low, high, step = _item(item, SECOND, MICROSECONDS)
        if high is None and step is not None and low + step > SECOND.high:
            raise EventRefused(f"{item!r}: there is no room for the repetition")
        if high is None and step is None:
            found.add(low)
            continue
        step = step or MICROSECONDS
        if step < 10_000:
            raise EventRefused(f"{item!r}: more than a hundred times a second")
        found |= set(range(low, (SECOND.high if high is None else high) + 1, step))
    return frozenset(found)


def _item(item: str, limits: Limits, unit: int) -> tuple[int, int | None, int | None]:
    """Return start, end and step of `a`, `a..b`, `a/n` or `a..b/n`. `unit`: what one is; fractions need a million."""
    match = PART.fullmatch(item)
    if match is None or (unit == 1 and "." in item.replace("..", "")):
        raise EventRefused(f"{item!r:.40} is no value of a calendar event")
    low, high, step = (None if one is None else round(float(one) * unit) if "." in one else int(one) * unit
                       for one in match.groups())  # fmt: skip
    assert low is not None
    if limits is YEAR:
        low, high = _full_year(low), None if high is None else _full_year(high)
    top = low if high is None else high
    if not limits.low <= low <= top <= limits.high or step == 0:
        raise EventRefused(f"{item!r}: out of range")
    return low, None if high == low and step is None else high, step


def _full_year(year: int) -> int:
    """Return a year that may be written without its century."""
    return year if year >= 100 else year + (2000 if year < 70 else 1900)
