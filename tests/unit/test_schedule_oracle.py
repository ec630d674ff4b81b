"""The rule: around every kind of clock change, slots equal those of an oracle that walks time minute by minute.

The oracle shares no code with the product: it knows a schedule as a plain predicate on wall clocks, and a zone only
as the wall clock that `astimezone` shows at each real minute.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest

from pgsched.core.schedule import parse

MINUTE = timedelta(minutes=1)
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),  # half an hour
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Chatham", "2026-04-05"),  # changes at 03:45 and 02:45
    ("Pacific/Chatham", "2026-09-27"),
    ("America/Santiago", "2026-04-05"),  # changes at midnight
    ("America/Santiago", "2026-09-06"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2026-10-30"),
    ("Asia/Beirut", "2026-03-29"),
    ("Asia/Beirut", "2026-10-25"),
    ("Pacific/Apia", "2011-12-30"),  # a day that never was
    ("Africa/Casablanca", "2026-02-15"),  # Ramadan
    ("Africa/Casablanca", "2026-03-22"),
    ("Asia/Pyongyang", "2018-05-04"),  # a single change of half an hour
    ("America/Caracas", "2016-05-01"),
    ("Antarctica/Troll", "2026-03-29"),  # two hours
    ("Antarctica/Troll", "2026-10-25"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("America/Havana", "2026-11-01"),
    ("Asia/Kolkata", "2026-06-01"),
    ("Europe/Lisbon", "2061-03-27"),
]

Match = Callable[[datetime], bool]
FIXED: dict[str, Match] = {
    "30 2 * * *": lambda w: (w.hour, w.minute) == (2, 30),
    "0 0 * * *": lambda w: (w.hour, w.minute) == (0, 0),
    "30 0 * * *": lambda w: (w.hour, w.minute) == (0, 30),
    "15,45 1,2,3 * * *": lambda w: w.hour in (1, 2, 3) and w.minute in (15, 45),
    "0-59 0-4,23 * * *": lambda w: w.hour in (0, 1, 2, 3, 4, 23),
    "0 1-3 * * SUN": lambda w: w.hour in (1, 2, 3) and w.minute == 0 and w.isoweekday() == 7,
    "10 2 */2 * 1-6": lambda w: (w.hour, w.minute) == (2, 10) and w.day % 2 == 1 and w.isoweekday() != 7,
    "10 0 1-7 * FRI": lambda w: (w.hour, w.minute) == (0, 10) and (w.day <= 7 or w.isoweekday() == 5),
    "0 12 30 12 *": lambda w: (w.hour, w.minute, w.day, w.month) == (12, 0, 30, 12),
    "0 0 2 * * *": lambda w: (w.hour, w.minute) == (2, 0),
}
WILDCARD: dict[str, Match] = {
    "* * * * *": lambda w: True,
    "*/20 * * * *": lambda w: w.minute % 20 == 0,
    "*/15 2 * * *": lambda w: w.hour == 2 and w.minute % 15 == 0,
    "5 * * * *": lambda w: w.minute == 5,
    "40 */2 * * *": lambda w: w.hour % 2 == 0 and w.minute == 40,
    "*/10 0-3 * * SUN": lambda w: w.minute % 10 == 0 and w.hour < 4 and w.isoweekday() == 7,
    "*/60 30 1,2 * * *": lambda w: w.hour in (1, 2) and w.minute == 30,
}


@lru_cache(maxsize=1)
def real_minutes(zone: str, day: str) -> list[tuple[datetime, datetime]]:
    """Every real minute from a day and a half before to a day and a half after, with the wall clock it shows."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1, hours=12)
    tz = ZoneInfo(zone)
    minutes = [start + n * MINUTE for n in range(3 * 24 * 60)]
    return [(minute, minute.astimezone(tz).replace(tzinfo=None, fold=0)) for minute in minutes]


def wildcard_slots(minutes: list[tuple[datetime, datetime]], matches: Match) -> list[datetime]:
    return [instant for instant, wall in minutes if matches(wall)]


def fixed_slots(minutes: list[tuple[datetime, datetime]], matches: Match) -> list[datetime]:
    """Each wall minute once, where the clock first shows it or, when it never does, first passes it."""
    slots, reached = set(), minutes[0][1] - MINUTE
    for instant, wall in minutes:
        while reached < wall:
            reached += MINUTE
            if matches(reached):
                slots.add(instant)
    return sorted(slots)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_slots_around_a_clock_change_are_those_of_the_oracle(zone: str, day: str) -> None:
    minutes = real_minutes(zone, day)
    first, final = minutes[0][0] - MINUTE, minutes[-1][0]
    for expressions, oracle in ((FIXED, fixed_slots), (WILDCARD, wildcard_slots)):
        for text, matches in expressions.items():
            schedule, expected = parse(text, zone), oracle(minutes, matches)
            assert list(schedule.between(first, final)) == expected, text
            assert schedule.count(first, final) == len(expected), text
            assert schedule.last(first, final) == (expected[-1] if expected else None), text


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_the_next_slot_is_right_from_every_quarter_of_an_hour(zone: str, day: str) -> None:
    minutes = real_minutes(zone, day)
    for expressions, oracle in ((FIXED, fixed_slots), (WILDCARD, wildcard_slots)):
        for text, matches in list(expressions.items())[2:6]:
            schedule, expected = parse(text, zone), oracle(minutes, matches)
            for instant, _ in minutes[20 * 60 : 48 * 60 : 15]:
                later = next((slot for slot in expected if slot > instant), None)
                if later is not None:
                    assert schedule.after(instant) == later, (text, instant)
                seen = [slot for slot in expected if minutes[0][0] <= slot <= instant]
                assert schedule.count(minutes[0][0] - MINUTE, instant) == len(seen), (text, instant)
