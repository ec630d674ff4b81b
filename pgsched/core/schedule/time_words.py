"""Parse the times that people type: `22:00`, `yesterday`, `monday 6:00`, `12 hours ago`, `in 2 hours`, `2h`, ISO.

Invariant: the instant depends on the text, the present instant, the zone and the direction, and on nothing else.

Where the text leaves the day open, the direction decides: the last such instant that is not in the future, or with
`ahead` the next one. A wall clock inside a gap stands for the end of the gap. A wall clock that occurs twice stands for
its first pass where the day is given; otherwise for the pass that is nearer to the present.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from pgsched.core.schedule.zones import Change

EXAMPLES = ("22:00", "yesterday", "yesterday 22:00", "tomorrow 6:00", "monday", "2h", "12 hours ago", "in 2 hours",
            "2026-05-01T10:00")  # fmt: skip
UNDERSTOOD = f"understood are {', '.join(EXAMPLES)}"
RELATIVE_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAYS = {name: n for n, day in enumerate(WEEKDAYS) for name in (day, day[:3])}  # monday is 0
UNITS = {
    name: unit
    for unit, names in {
        "milliseconds": ("ms", "msec", "millisecond"),
        "seconds": ("s", "sec", "secs", "second"),
        "minutes": ("m", "min", "mins", "minute"),
        "hours": ("h", "hr", "hrs", "hour"),
        "days": ("d", "day"),
        "weeks": ("w", "week"),
    }.items()
    for name in (*names, unit)
}
CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
LENGTH = re.compile(r"(?:\d{1,9} ?[a-z]+ ?)+", re.ASCII)
PIECE = re.compile(r"(\d{1,9}) ?([a-z]+)", re.ASCII)
LONGEST = 100  # characters
DAY, WEEK = timedelta(days=1), timedelta(days=7)


def parse_age(text: str) -> timedelta | None:
    """Return how long ago a text says: `2h`, `1h 30m`, `12 hours ago`; None for any other text.

    A day is 24 hours, a week is 7 days. Raises OverflowError for more than timedelta holds.
    """
    return parse_length(normalize(text).removesuffix(" ago"))


def parse_length(words: str) -> timedelta | None:
    """Return the sum of lengths such as `2h` or `1 hour 30 minutes`; None for any other text."""
    if len(words) > LONGEST or not LENGTH.fullmatch(words):
        return None
    pieces = PIECE.findall(words)
    if any(unit not in UNITS for _, unit in pieces):
        return None
    return sum((timedelta(**{UNITS[unit]: int(number)}) for number, unit in pieces), timedelta(0))


def parse_time(text: str, now: datetime, tz: tzinfo, *, ahead: bool = False) -> datetime | None:
    """Return the instant, in UTC, that a text means; None for a text that is not understood.

    `now`: the present instant. `tz`: the zone of wall clocks, an IANA zone or UTC. `ahead`: of several possible
    instants the next one in the future; otherwise the last one that is not in the future.
    Raises OverflowError for an instant that datetime does not hold.
    """
    words = normalize(text)
    now = now.astimezone(UTC)
    if words == "now":
        return now
    if words.startswith("in ") and (length := parse_length(words[3:])) is not None:
        return now + length
    if (age := parse_age(text)) is not None:
        return now + age if ahead and not words.endswith(" ago") else now - age
    if len(words) <= LONGEST and (named := parse_day_and_clock(words)) is not None:
        return find_instant(*named, now, tz, ahead=ahead)
    return parse_iso(text, tz)


def normalize(text: str) -> str:
    """Return the text in small letters, with single spaces, and without the word `at`."""
    return " ".join(word for word in text.lower().split() if word != "at")


def parse_day_and_clock(words: str) -> tuple[str | None, time | None] | None:
    """Return the day's name and the wall clock of a text such as `monday 6:00`; each may be missing, not both."""
    day: str | None = None
    clock: time | None = None
    for word in words.split():
        if (found := CLOCK.fullmatch(word)) and clock is None:
            hour, minute, second = (int(part or 0) for part in found.groups())
            if hour > 23 or minute > 59 or second > 59:
                return None
            clock = time(hour, minute, second)
        elif (word in RELATIVE_DAYS or word in DAYS) and day is None:
            day = word
        else:
            return None
    return None if day is None and clock is None else (day, clock)


def find_instant(day: str | None, clock: time | None, now: datetime, tz: tzinfo, *, ahead: bool) -> datetime:
    """Return the instant of a named day, a wall clock, or both."""
    today = now.astimezone(tz).date()
    if day in RELATIVE_DAYS:
        return instants_of(today + RELATIVE_DAYS[day] * DAY, clock, tz)[0]
    near = [today + n * DAY for n in range(-8, 9)]
    dates = [one for one in near if day is None or one.weekday() == DAYS[day]]
    found = [instant for one in dates for instant in instants_of(one, clock, tz)]
    return min(one for one in found if one > now) if ahead else max(one for one in found if one <= now)


def instants_of(day: date, clock: time | None, tz: tzinfo) -> list[datetime]:
    """Return the instants, in UTC, at which the wall clock of a day shows this time; None: its first instant."""
    naive = datetime.combine(day, clock or time())
    if not isinstance(tz, ZoneInfo):
        return [naive.replace(tzinfo=tz).astimezone(UTC)]
    from pgsched.core.schedule import zones

    if clock is None:
        return [zones.midnight(tz, day)]
    change = zones.change_at(tz, naive)
    if change is not None and change.after > change.before:
        return [change.at]
    return sorted({zones.instant_of(naive, zones.offset(tz, naive, fold)) for fold in (0, 1)})


def parse_iso(text: str, tz: tzinfo) -> datetime | None:
    """Return the instant, in UTC, of ISO text; without an offset it is a wall clock of the zone."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    gap = gap_at(found, tz)
    if gap is not None:
        return gap.at
    return (found if found.tzinfo is not None else found.replace(tzinfo=tz)).astimezone(UTC)


def gap_at(wall: datetime, tz: tzinfo) -> Change | None:
    """Return the offset change of the zone that skips this wall clock; None where it exists."""
    if wall.tzinfo is not None or not isinstance(tz, ZoneInfo):
        return None
    from pgsched.core.schedule import zones

    change = zones.change_at(tz, wall)
    return change if change is not None and change.after > change.before else None


def explain_unknown(field: str, text: str) -> str:
    """Return the message about a text that is not understood, with the words that are."""
    from pgsched.core.text import did_you_mean

    known = [*RELATIVE_DAYS, *WEEKDAYS, "now"]
    slips = [word for word in normalize(text)[:LONGEST].split() if word.isalpha() and word not in known]
    hint = next((found for word in slips if (found := did_you_mean(word, known))), "")
    return f'{field}: "{text}" is not a time; {UNDERSTOOD}{hint}'
