"""Sets of numbers as cron expressions: each spelling names exactly the wall clocks of the fields."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.schedule.cron import parse
from pgsched.importers.schedules.fields import LAST, Fields, write_days, write_spellings
from pgsched.importers.schedules.lengths import every
from pgsched.importers.schedules.numbers import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field, write_plain, write_starred
from tests.support.fuzz.profile import examples

START = datetime(2027, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
DAYS = 366


def subsets(field: Field) -> st.SearchStrategy[frozenset[int]]:
    full = list(field.full())
    steps = st.integers(1, 9).map(lambda step: frozenset(full[::step]))
    return st.one_of(
        st.just(frozenset(full)),
        steps,
        st.frozensets(st.sampled_from(full), min_size=1),
        st.frozensets(st.sampled_from(full), min_size=1, max_size=3),
    )


ANY = st.builds(
    Fields,
    minutes=subsets(MINUTE),
    hours=subsets(HOUR),
    days=st.one_of(subsets(DAY), st.just(frozenset())),
    months=subsets(MONTH),
    weekdays=st.one_of(subsets(WEEKDAY), st.just(frozenset())),
    last_day=st.booleans(),
    nth=st.one_of(
        st.just(frozenset()),
        st.frozensets(st.tuples(st.sampled_from(range(7)), st.sampled_from([1, 2, 3, 4, 5, LAST])), max_size=3),
    ),
    both=st.booleans(),
)


def is_named(fields: Fields, day: datetime) -> bool:
    length = monthrange(day.year, day.month)[1]
    weekday = day.isoweekday() % 7
    in_month = day.day in fields.days or (fields.last_day and day.day == length)
    which = {(day.day - 1) // 7 + 1, *([LAST] if day.day + 7 > length else [])}
    in_week = weekday in fields.weekdays or any((weekday, n) in fields.nth for n in which)
    return day.month in fields.months and ((in_month and in_week) if fields.both else (in_month or in_week))


def days_named(fields: Fields) -> list[datetime]:
    every_day = (START + timedelta(days=n, seconds=1) for n in range(DAYS))
    return [day for day in every_day if is_named(fields, day)]


@examples(15, 60)
@given(ANY)
def test_each_spelling_names_the_days_and_times_of_the_fields(fields: Fields) -> None:
    wanted = days_named(fields)
    if not wanted:
        return
    first, last = wanted[0], wanted[-1]
    times = [timedelta(hours=h, minutes=m) for h in sorted(fields.hours) for m in sorted(fields.minutes)]
    for expression in write_spellings(fields):
        schedule = parse(expression)
        slot, found = schedule.after(START), []
        while slot is not None and slot <= START + timedelta(days=DAYS):
            found.append(slot.replace(hour=0, minute=0))
            assert is_named(fields, found[-1])
            slot = schedule.after(slot.replace(hour=23, minute=59, second=59))
        assert found == wanted
        for day in (first, last):
            assert list(schedule.between(day - timedelta(seconds=1), day + timedelta(hours=23, minutes=59))) == [
                day + time for time in times
            ]


@settings(deadline=None, max_examples=100)
@given(ANY)
def test_days_are_left_unwritten_only_where_two_kinds_of_days_must_both_match(fields: Fields) -> None:
    if write_days(fields) is None:
        empty = not (fields.days or fields.last_day), not (fields.weekdays or fields.nth)
        assert fields.both or all(empty)
        assert any(empty) or (len(fields.days) < 31 and len(fields.weekdays) < 7)


@pytest.mark.parametrize(
    ("days", "weekdays", "expected"),
    [
        ({13}, {5}, None),  # Friday the 13th
        (set(range(1, 8)), {1}, ("*/31,2-7", "1")),
        (set(range(15, 22)), {1, 2}, ("*", "1#3,2#3")),
        ({29, 30, 31}, {5}, ("*", "5#5")),
        ({13}, {0, 1}, ("13", "*/7,1")),
        ({*range(8, 15), *range(22, 29)}, {6}, ("*", "6#2,6#4")),
    ],
)
def test_days_that_must_both_match(days: set[int], weekdays: set[int], expected: tuple[str, str] | None) -> None:
    fields = Fields(frozenset({0}), frozenset({0}), days=frozenset(days), weekdays=frozenset(weekdays))
    assert write_days(fields) == expected


@pytest.mark.parametrize(
    ("numbers", "plain", "starred"),
    [
        (range(60), "0-59", "*"),
        (range(0, 60, 5), "0-55/5", "*/5"),
        ({0}, "0", "*/60"),
        ({7}, "7", None),
        ({0, 30, 31, 32}, "0,30-32", "*/60,30-32"),
        (range(3, 60, 10), "3-53/10", None),
    ],
)
def test_spellings_of_minutes(numbers: range | set[int], plain: str, starred: str | None) -> None:
    assert write_plain(MINUTE, frozenset(numbers)) == plain
    assert write_starred(MINUTE, frozenset(numbers)) == starred


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(30, "@every 30s"), (5400, "@every 1h30m"), (90_061, "@every 1d1h1m1s"), (0, None), (-5, None), (1.5, None)],
)
def test_lengths_as_schedules(seconds: float, expected: str | None) -> None:
    assert every(timedelta(seconds=seconds)) == expected


def test_a_delay_moves_minutes_and_seconds_within_the_hour() -> None:
    fields = Fields(frozenset({0, 30}), frozenset({2}))
    moved = fields.delayed(90)
    assert moved is not None
    assert write_spellings(moved)[0] == "30 1,31 2 * * *"
    assert fields.delayed(30 * 60) is None
    assert fields.delayed(-1) is None
