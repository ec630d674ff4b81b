"""The fields of Celery's crontab as numbers.

Invariant: a field is read as Celery reads it, or `FieldRefused` says what is wrong with it.

Source: the documentation of celery.schedules.crontab and crontab_parser,
https://docs.celeryq.dev/en/stable/reference/celery.schedules.html. Ranges may wrap (`fri-mon`), names count by their
first three letters, and a day must match both the day of the month and the day of the week.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgsched.importers.schedules.fields import Fields
from pgsched.importers.schedules.numbers import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field

ITEM = re.compile(r"(?:(\*)|(\w{1,20})(?:-(\w{1,20}))?)(?:/(\d{1,6}))?", re.ASCII)
LONGEST = 1000


class FieldRefused(Exception):
    """Celery does not accept the field."""


@dataclass(frozen=True, slots=True)
class Crontab:
    """A crontab as Celery has expanded it. `timezone`: its own zone, None for that of the app."""

    minute: frozenset[int]
    hour: frozenset[int]
    day_of_week: frozenset[int]
    day_of_month: frozenset[int]
    month_of_year: frozenset[int]
    timezone: str | None = None

    def fields(self) -> Fields:
        """Return the wall clocks that it names. Raises FieldRefused for numbers that a field does not have."""
        return Fields(
            minutes=check_numbers(MINUTE, self.minute),
            hours=check_numbers(HOUR, self.hour),
            days=check_numbers(DAY, self.day_of_month),
            months=check_numbers(MONTH, self.month_of_year),
            weekdays=check_numbers(WEEKDAY, self.day_of_week),
        )


def read_crontab(
    minute: str, hour: str, day_of_week: str, day_of_month: str, month_of_year: str, timezone: str | None = None
) -> Crontab:
    """Return the crontab of five texts, in the order of Celery's arguments. Raises FieldRefused."""
    return Crontab(
        read_field(MINUTE, minute),
        read_field(HOUR, hour),
        read_field(WEEKDAY, day_of_week),
        read_field(DAY, day_of_month),
        read_field(MONTH, month_of_year),
        timezone,
    )


def check_numbers(field: Field, numbers: frozenset[int]) -> frozenset[int]:
    """Return the numbers of a field. Raises FieldRefused for none, and for those that the field does not have."""
    if not numbers or not all(isinstance(one, int) and field.low <= one <= field.high for one in numbers):
        raise FieldRefused(f"numbers of the field {field.name}")
    return frozenset(numbers)


def read_field(field: Field, text: str) -> frozenset[int]:
    """Return the numbers of a field. Raises FieldRefused."""
    if len(text) > LONGEST:
        raise FieldRefused(f"the field {field.name} is longer than {LONGEST} characters")
    return frozenset(number for item in text.split(",") for number in read_item(field, item.strip()))


def read_item(field: Field, item: str) -> list[int]:
    """Return the numbers of an item. Raises FieldRefused."""
    found = ITEM.fullmatch(item)
    if found is None or (found[4] and not (found[1] or found[3])) or (found[4] and int(found[4]) == 0):
        raise FieldRefused(f'"{item[:40]}" in the field {field.name}')
    step = int(found[4] or 1)
    if found[1]:
        return list(field.full())[::step]
    low = read_number(field, found[2])
    high = read_number(field, found[3] or found[2])
    if high < low:
        return [*range(low, field.high + 1), *range(field.low, high + 1)][::step]
    return list(range(low, high + 1))[::step]


def read_number(field: Field, text: str) -> int:
    """Return a number, or the name of a month or weekday. Raises FieldRefused."""
    name = text[:3].lower()
    number = int(text) if text.isdigit() else MONTH.names.get(name, WEEKDAY.names.get(name))
    if number is None or not field.low <= number <= field.high:
        raise FieldRefused(f'"{text}" in the field {field.name}')
    return number
