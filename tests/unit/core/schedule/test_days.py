"""PlainDays finds the same next day as a walk over each day."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

import pytest

from pgsched.core.schedule.plain_days import DAY, PlainDays, is_plain


def walked(months: str, days: tuple[str, str], midnight: datetime, most: int) -> datetime | None:
    """Return the first day that fits, found by looking at each day."""
    for n in range(most):
        day = midnight + n * DAY
        given = (day.month, months), (day.day, days[0]), (day.isoweekday() % 7, days[1])
        if all(column == "*" or str(number) in column.split(",") for number, column in given):
            return day
    return None


def column(rng: Random, low: int, high: int) -> str:
    count = rng.choice([0, 0, 1, 1, 2, 5])
    return ",".join(map(str, sorted(rng.sample(range(low, high + 1), count)))) or "*"


@pytest.mark.parametrize("seed", range(300))
def test_the_next_day_is_the_one_that_walking_finds(seed: int) -> None:
    rng = Random(seed)
    months, days = column(rng, 1, 12), (column(rng, 1, 31), column(rng, 0, 6))
    midnight = datetime(1996, 1, 1) + timedelta(days=rng.randrange(4000))
    found = PlainDays(months, days, 50).first(midnight)
    assert found == walked(months, days, midnight, 366 * 50)


def test_rare_days_are_found_across_a_century_without_its_leap_day() -> None:
    assert PlainDays("2", ("29", "1"), 50).first(datetime(2080, 3, 1)) == datetime(2112, 2, 29)
    assert PlainDays("2", ("30", "*"), 50).first(datetime(2024, 1, 1)) is None


@pytest.mark.parametrize("days", [("*", "*"), ("31", "*"), ("*", "5")])
def test_the_search_ends_with_the_year_9999(days: tuple[str, str]) -> None:
    assert PlainDays("*", days, 50).first(datetime(9999, 12, 31)) == datetime(9999, 12, 31)
    assert PlainDays("1", days, 50).first(datetime(9999, 2, 1)) is None


def test_only_numbers_are_plain() -> None:
    assert is_plain(("*", "*")) and is_plain(("1,31", "0,6"))
    assert not any(map(is_plain, [("l", "*"), ("*", "1#2"), ("15w", "*"), ("*", "l5"), ("1,l", "*")]))
