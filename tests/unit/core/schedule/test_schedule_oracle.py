"""Around every clock change, slots equal those of an oracle that walks time step by step.

The oracle shares no code with the product. To the oracle, a schedule is a plain predicate on wall clocks. A zone is
only the wall clock that `astimezone` shows at each real minute (each real second for six fields).

There are two parts: tables of expressions around chosen changes, and random expressions. The ordinary suite draws a
few random expressions around one change of each zone. This command looks at every change of 2010-2030, takes about
7 minutes on one core, and prints figures:

    PGSCHED_ORACLE=full python -m pytest -n 0 -s tests/unit/core/schedule/test_schedule_oracle.py -k random

PGSCHED_ORACLE_SEED=N draws other expressions.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random

import pytest

from pgsched.core.schedule.cron import Schedule, parse
from pgsched.errors import ScheduleError
from tests.support.simulation.oracle import Meaning, Walk, draw, load, offset_changes

MINUTE = timedelta(minutes=1)
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),  # a change of half an hour
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Chatham", "2026-04-05"),  # changes at 03:45 and 02:45
    ("Pacific/Chatham", "2026-09-27"),
    ("America/Santiago", "2026-04-05"),  # changes at midnight
    ("America/Santiago", "2026-09-06"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2026-10-30"),
    ("Asia/Beirut", "2026-03-29"),
    ("Asia/Beirut", "2026-10-25"),
    ("Pacific/Apia", "2011-12-30"),  # a day that does not exist there
    ("Africa/Casablanca", "2026-02-15"),  # changes around Ramadan
    ("Africa/Casablanca", "2026-03-22"),
    ("Asia/Pyongyang", "2018-05-04"),  # a single change of half an hour
    ("America/Caracas", "2016-05-01"),
    ("Antarctica/Troll", "2026-03-29"),  # a change of two hours
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
    """Return every real minute within 36 hours of a day's start, with the wall clock that it shows."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1, hours=12)
    tz = load(zone)
    minutes = [start + n * MINUTE for n in range(3 * 24 * 60)]
    return [(minute, minute.astimezone(tz).replace(tzinfo=None, fold=0)) for minute in minutes]


def wildcard_slots(minutes: list[tuple[datetime, datetime]], matches: Match) -> list[datetime]:
    return [instant for instant, wall in minutes if matches(wall)]


def fixed_slots(minutes: list[tuple[datetime, datetime]], matches: Match) -> list[datetime]:
    """Return each wall minute once: where the clock first shows it or, if it never does, first passes it."""
    slots, reached = set(), minutes[0][1] - MINUTE
    for instant, wall in minutes:
        while reached < wall:
            reached += MINUTE
            if matches(reached):
                slots.add(instant)
    return sorted(slots)


@pytest.mark.few(6)
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


@pytest.mark.few(7)
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


FULL = os.environ.get("PGSCHED_ORACLE") == "full"
SEED = int(os.environ.get("PGSCHED_ORACLE_SEED", "1"))
YEARS = (2010, 2030)
ZONES = str.split("""
Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Johannesburg Africa/Juba Africa/Khartoum Africa/Sao_Tome
Africa/Tripoli Africa/Tunis Africa/Windhoek America/Adak America/Anchorage America/Argentina/San_Luis America/Asuncion
America/Bogota America/Caracas America/Chicago America/Chihuahua America/Ciudad_Juarez America/Coyhaique America/Denver
America/Grand_Turk America/Havana America/Los_Angeles America/Mexico_City America/Miquelon America/Montevideo
America/New_York America/Nuuk America/Port-au-Prince America/Santiago America/Sao_Paulo America/Scoresbysund
America/St_Johns Antarctica/Casey Antarctica/Macquarie Antarctica/Troll Antarctica/Vostok Asia/Amman Asia/Almaty
Asia/Baku Asia/Beirut Asia/Damascus Asia/Dhaka Asia/Famagusta Asia/Gaza Asia/Hovd Asia/Irkutsk Asia/Jerusalem
Asia/Kamchatka Asia/Kathmandu Asia/Kolkata Asia/Magadan Asia/Pyongyang Asia/Tehran Asia/Tokyo Atlantic/Azores
Atlantic/Stanley Australia/Adelaide Australia/Lord_Howe Australia/Sydney Europe/Berlin Europe/Chisinau Europe/Dublin
Europe/Istanbul Europe/Kyiv Europe/Lisbon Europe/London Europe/Moscow Europe/Volgograd Pacific/Apia Pacific/Auckland
Pacific/Bougainville Pacific/Chatham Pacific/Easter Pacific/Fakaofo Pacific/Fiji Pacific/Norfolk Pacific/Tongatapu UTC
""")
EXPRESSIONS = {False: 12, True: 3} if FULL else {False: 3, True: 1}  # how many for each change; True: with six fields
SHAPES = {False: (MINUTE, timedelta(hours=36)), True: (timedelta(seconds=1), timedelta(hours=2, minutes=30))}
DENSE = 300


@pytest.fixture(scope="module")
def figures() -> Iterator[Counter[str]]:
    """Count what was compared, and print the figures at the end."""
    found: Counter[str] = Counter()
    yield found
    print(f"\nseed {SEED}: " + ", ".join(f"{number} {what}" for what, number in found.items()))


def changes_to_look_at(zone: str, rng: Random) -> list[datetime]:
    """Return all changes of a zone if FULL, otherwise a random one; without any change, another moment."""
    if FULL:
        return offset_changes(load(zone), *YEARS) or [datetime(2024, 2, 29, tzinfo=UTC)]
    for year in rng.sample(range(YEARS[0], YEARS[1] + 1), 3):
        if found := offset_changes(load(zone), year, year):
            return [rng.choice(found)]
    return [datetime(2024, 2, 29, tzinfo=UTC)]


def parsed(meaning: Meaning, zone: str) -> Schedule | None:
    """Return the schedule; None if it is refused because it never fires.

    It may be refused only if no day matches, or the clocks skip all its times.
    """
    try:
        return parse(meaning.text, zone)
    except ScheduleError as error:
        assert "never fires" in str(error), meaning.text
        days = (datetime(2024, 1, 1).date() + timedelta(days=n) for n in range(28 * 366))
        assert "skips every such time" in str(error) or not any(map(meaning.on_day, days)), meaning.text
        return None


def compare(schedule: Schedule, walk: Walk, meaning: Meaning, middle: datetime, rng: Random) -> int:
    """Ask the schedule every question about this span of time; return how many answers were compared."""
    expected, why = walk.slots(meaning), (schedule.expression, schedule.timezone, middle)
    step = walk.instants[1] - walk.instants[0]
    first, final = walk.instants[0] - step, walk.instants[-1]
    assert schedule.count(first, final) == len(expected), why
    assert schedule.last(first, final) == (expected[-1] if expected else None), why
    if len(expected) > DENSE:
        near = 75 * step
        asked = [slot for slot in expected if middle - near < slot <= middle + near]
        assert list(schedule.between(middle - near, middle + near)) == asked, why
    else:
        asked = expected
        assert list(schedule.between(first, final)) == asked, why
    for _ in range(10):
        start = rng.choice(walk.instants) + rng.random() * step
        later = next((slot for slot in expected if slot > start), None)
        found = schedule.after(start)
        assert found == later or (later is None and (found is None or found > final)), (*why, start)
    return len(asked) + 12


@pytest.mark.few(12)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zone", ZONES)
def test_random_expressions_have_the_slots_of_the_oracle(zone: str, figures: Counter[str]) -> None:
    rng = Random(f"{SEED} {zone}")
    figures["zones"] += 1
    for middle in changes_to_look_at(zone, rng):
        figures["changes"] += 1
        for six, (step, reach) in SHAPES.items():
            walk = Walk(load(zone), middle - reach, 2 * (reach // step), step)
            around = walk.shown[len(walk.shown) // 2]
            for _ in range(EXPRESSIONS[six]):
                meaning = draw(rng, around, six)
                schedule = parsed(meaning, zone)
                figures["expressions" if schedule else "expressions that never fire"] += 1
                if schedule is not None:
                    figures["answers compared"] += compare(schedule, walk, meaning, middle, rng)
