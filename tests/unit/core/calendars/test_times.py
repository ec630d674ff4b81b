"""Times of calendars are read as people type them, and written in the same form."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.calendars.times import CalendarTime, describe_time, is_same_time, parse_calendar_time
from pgsched.errors import InputError

CHRISTMAS = date(2026, 12, 24), date(2026, 12, 26)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("2026-12-24..2026-12-26", CalendarTime(*CHRISTMAS)),
        ("2026-12-24", CalendarTime(CHRISTMAS[0], CHRISTMAS[0])),
        ("sat,sun", CalendarTime(weekdays=(0, 6))),
        ("SAT,Sunday", CalendarTime(weekdays=(0, 6))),
        ("fri-mon", CalendarTime(weekdays=(0, 1, 5, 6))),
        ("mon-fri 18:00-24:00", CalendarTime(weekdays=(1, 2, 3, 4, 5), from_time="18:00", until_time="24:00")),
        ("08:30:15-09:00", CalendarTime(from_time="08:30:15", until_time="09:00")),
        ("2026-12-24..2026-12-26 14:00-16:00 fri", CalendarTime(*CHRISTMAS, (5,), "14:00", "16:00")),
    ],
)
def test_a_time_is_dates_weekdays_and_hours_together(words: str, expected: CalendarTime) -> None:
    assert parse_calendar_time(words.split()) == expected
    assert parse_calendar_time(words.split(), "why").reason == "why"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "time: is missing"),
        ("2026-12-24 2026-12-26", 'time: "2026-12-26" names dates, weekdays or hours a second time'),
        ("18:00-17:00", 'time: "18:00-17:00" does not end later than it begins'),
        ("18:00-24:30", 'time: "18:00-24:30" does not end later'),
        ("2026-12-32", 'dates: "2026-12-32" is not DATE'),
        ("sta", 'time: "sta" is not understood; understood are 2026-12-25'),
        ("sat,,sun", 'time: "sat,,sun" is not understood'),
        ("25:00-26:00", "dates: "),
    ],
)
def test_what_is_not_understood_is_refused_with_what_is(words: str, error: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_calendar_time(words.split())
    assert str(refused.value).startswith(error)


times = st.tuples(
    st.one_of(st.none(), st.tuples(st.dates(date(1970, 1, 1), date(8999, 1, 1)), st.integers(0, 40))),
    st.one_of(st.none(), st.sets(st.integers(0, 6), min_size=1)),
    st.one_of(st.none(), st.tuples(st.integers(0, 22), st.integers(0, 59))),
).filter(any)


@settings(deadline=None)
@given(times)
def test_a_described_time_is_read_back(
    drawn: tuple[tuple[date, int] | None, set[int] | None, tuple[int, int] | None],
) -> None:
    dates, days, clock = drawn
    last = None if dates is None else date.fromordinal(dates[0].toordinal() + dates[1])
    hours = (None, None) if clock is None else (f"{clock[0]:02}:{clock[1]:02}", f"{clock[0] + 1:02}:00:30")
    time = CalendarTime(dates and dates[0], last, days and tuple(sorted(days)), *hours)
    assert is_same_time(parse_calendar_time(describe_time(time).split()), time)


def test_hours_of_the_database_equal_typed_ones() -> None:
    stored = CalendarTime(weekdays=(1,), from_time="18:00:00", until_time="24:00:00", reason="closed")
    assert is_same_time(stored, parse_calendar_time(["mon", "18:00-24:00"]))
    assert describe_time(stored) == "mon 18:00-24:00"
