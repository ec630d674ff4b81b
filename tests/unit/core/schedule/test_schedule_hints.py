"""A refused schedule says what may have been meant, and each such schedule is accepted."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.schedule import grammar, hints
from pgsched.core.schedule.cron import parse
from pgsched.errors import ScheduleError

TIMES = ["9am", "9:30", "12pm", "noon", "15", "1st", "last", "0", "UTC"]
WORDS = sorted({*hints.FILLERS, *hints.UNITS, *hints.DAYS, *TIMES})


def hint(expression: str) -> str | None:
    with pytest.raises(ScheduleError) as refused:
        grammar.parse_expression(expression)
    found = re.search(r"; did you mean (.*)\?$", str(refused.value))
    return found[1] if found else None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("every monday at 9am", "0 9 * * 1"),
        ("Every Monday at 9 AM", "0 9 * * 1"),
        ("mondays 9:05", "5 9 * * 1"),
        ("at 9:30pm on tuesday, thursday and friday", "30 21 * * 2,4,5"),
        ("every weekday at noon", "0 12 * * 1-5"),
        ("weekends", "0 0 * * 0,6"),
        ("every day at 9am and 5pm", "0 9,17 * * *"),
        ("daily at 12am", "0 0 * * *"),
        ("9:30", "30 9 * * *"),
        ("every 15 minutes", "*/15 * * * *"),
        ("every 45 minutes", "@every 45m"),
        ("every minute", "* * * * *"),
        ("hourly", "0 * * * *"),
        ("every 6 hours", "0 */6 * * *"),
        ("every 90 seconds", "@every 90s"),
        ("every 2 days", "@every 2d"),
        ("on the 15th of every month at 9", "0 9 15 * *"),
        ("the last day of the month", "0 0 L * *"),
        ("monthly", "0 0 1 * *"),
        ("weekly", "0 0 * * 0"),
        ("0 9 * * * America/New_York", "0 9 * * * with timezone America/New_York"),
        ("@daily Europe/Berlin", "@daily with timezone Europe/Berlin"),
        ("every monday at 9am in Europe/Berlin", "0 9 * * 1 with timezone Europe/Berlin"),
        ("0 9 * * *  utc", "0 9 * * * with timezone UTC"),
        ("0 9 * * 1;  0 10 * * 2 Europe/Berlin", "0 9 * * 1; 0 10 * * 2 with timezone Europe/Berlin"),
        ("@daily;0 10 * * 2 gmt", "@daily;0 10 * * 2 with timezone GMT"),
    ],
)
def test_a_refused_schedule_has_a_hint(typed: str, meant: str) -> None:
    assert hint(typed) == meant
    schedule, _, zone = meant.partition(" with timezone ")
    parse(schedule, zone or "UTC")


@pytest.mark.parametrize(
    "typed",
    [
        "every monday at 9am and 9:30am",  # two schedules
        "every 2 days at 9am",
        "every fortnight",
        "every 0 minutes",
        "25:00",
        "at 13pm",
        "32nd",
        "every",
        "",
        "61 * * * *",
        "61 * * * * Europe/Berlin",
        "Europe/Berlin",
        "* * * * * Europe/Berlin Europe/Paris",
        "every day of the week",
        "every monday at 9am; every friday at 10am",
        "hourly;",
        "0 9 * * *; Europe/Berlin",
        "0 9 * * * Europe/Berlin; 0 10 * * *",
        "@every 5m; @daily Europe/Berlin",
    ],
)
def test_what_is_not_clear_has_no_hint(typed: str) -> None:
    assert hint(typed) is None


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join))
def test_each_hinted_schedule_is_accepted(sentence: str) -> None:
    text = hints.find_hint(sentence, lambda _: False)
    found = re.fullmatch(r"; did you mean (.*?)( with timezone (.*))?\?", text)
    assert found or not text
    if found is not None:
        parse(found[1], found[3] or "UTC")


def test_the_field_of_the_error_stays() -> None:
    with pytest.raises(ScheduleError) as refused:
        parse("every 5 minutes on monday")
    assert refused.value.field == "minute"
    with pytest.raises(ScheduleError, match=r"^schedule: expected 5 or 6 fields, got 4; did you mean 0 9 \* \* 1\?$"):
        parse("every monday at 9am")


def nearest_weekday(year: int, month: int, day: int) -> date:
    """Return the weekday nearest to a day, in its month: as Quartz documents the letter W."""
    end = (date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)).day
    named = date(year, month, min(day, end))
    near = [named + timedelta(days=n) for n in (0, -1, 1, -2, 2)]
    return next(one for one in near if one.weekday() < 5 and one.month == month)


@pytest.mark.parametrize("days", [(1, 15), (15, 1), (1, 31), (30, 31), (2, 3), (14, 15, 16)])
def test_several_nearest_weekdays_in_one_list_are_each_found(days: tuple[int, ...]) -> None:
    text = f"0 0 {','.join(f'{day}W' for day in days)} * *"
    begin, end = (datetime(year, 1, 1, tzinfo=UTC) for year in (2024, 2060))
    found = [slot.date() for slot in islice(parse(text).between(begin - timedelta(days=1), end), 200)]
    expected = sorted({nearest_weekday(2024 + n // 12, n % 12 + 1, day) for n in range(300) for day in days})
    assert found == expected[:200]
