"""A schedule as sets of numbers, and the cron expressions that name the same wall clocks.

Invariant: an expression names exactly the wall clocks of the fields, or there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from pgsched.importers.schedules.numbers import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    Field,
    write_numbers,
    write_plain,
    write_starred,
)

LAST = -1  # the last such weekday of a month
ANY_SECOND = frozenset({0})
# The days on which the nth of a weekday can be.
WEEKS = {n: frozenset(range(7 * n - 6, min(7 * n, 31) + 1)) for n in range(1, 6)}


@dataclass(frozen=True, slots=True)
class Fields:
    """The wall clocks that a schedule names.

    `weekdays`: 0 is Sunday.
    `last_day`: the last day of each month, beside `days`.
    `nth`: pairs of a weekday and which one of the month: 1 to 5, or LAST.
    `both`: a day must be one of the days of the month and one of the weekdays. Otherwise it must be one of either.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] = frozenset(DAY.full())
    months: frozenset[int] = frozenset(MONTH.full())
    weekdays: frozenset[int] = frozenset(WEEKDAY.full())
    seconds: frozenset[int] = ANY_SECOND
    last_day: bool = False
    nth: frozenset[tuple[int, int]] = frozenset()
    both: bool = True

    def delayed(self, seconds: int) -> Fields | None:
        """Return the fields of the wall clocks that are this much later; None where they pass into another hour."""
        minutes, left_s = divmod(seconds, 60)
        if self.seconds != ANY_SECOND or seconds < 0 or max(self.minutes) + minutes > 59:
            return None
        return replace(self, minutes=frozenset(one + minutes for one in self.minutes), seconds=frozenset({left_s}))


def write_spellings(fields: Fields) -> list[str]:
    """Return the expressions of the fields, the usual one first; none where no expression means these days.

    They name the same wall clocks, and differ in what they do where clocks change.
    """
    days = write_days(fields)
    if days is None or not (fields.minutes and fields.hours and fields.seconds and fields.months):
        return []
    clock = ((SECOND, fields.seconds), (MINUTE, fields.minutes), (HOUR, fields.hours))
    usual = [write_numbers(field, numbers) for field, numbers in clock]
    fixed = [write_plain(field, numbers) for field, numbers in clock]
    month = write_numbers(MONTH, fields.months)
    found = [usual, fixed, *([text] if (text := write_wildcard(fields)) else [])]
    expressions = []
    for second, minute, hour in found:
        front = [] if second == "0" else [second]
        expressions.append(" ".join([*front, minute, hour, days[0], month, days[1]]))
    return list(dict.fromkeys(expressions))


def write_wildcard(fields: Fields) -> list[str] | None:
    """Return second, minute and hour with one that begins with `*`; None where none can."""
    numbers = [(HOUR, fields.hours), (MINUTE, fields.minutes), (SECOND, fields.seconds)]
    texts = [write_numbers(field, some) for field, some in numbers]
    if any(text.startswith("*") for text in texts):
        return texts[::-1]
    for at in (2, 1, 0):  # the seconds first: minutes and hours stay readable
        starred = write_starred(*numbers[at])
        if starred is not None:
            texts[at] = starred
            return texts[::-1]
    return None


def write_days(fields: Fields) -> tuple[str, str] | None:
    """Return the fields for the day of the month and the day of the week; None where no expression means these days."""
    special = [f"{day}L" if n == LAST else f"{day}#{n}" for day, n in sorted(fields.nth)]
    last = ["L"] if fields.last_day else []
    no_day, no_weekday = not (fields.days or last), not (fields.weekdays or special)
    any_day = len(fields.days) == len(DAY.full())
    any_weekday = len(fields.weekdays) == len(WEEKDAY.full())
    if (no_day and no_weekday) or (fields.both and (no_day or no_weekday)):
        return None
    if (any_day and any_weekday) or (not fields.both and (any_day or any_weekday)):
        return "*", "*"
    if no_day or any_day:
        return "*", join_items(WEEKDAY, write_numbers, fields.weekdays, special)
    if no_weekday or any_weekday:
        return join_items(DAY, write_numbers, fields.days, last), "*"
    if not fields.both:
        weekdays = join_items(WEEKDAY, write_plain, fields.weekdays, special)
        return join_items(DAY, write_plain, fields.days, last), weekdays
    return write_both(fields, last, special)


def write_both(fields: Fields, last: list[str], special: list[str]) -> tuple[str, str] | None:
    """Return two fields that a day must both match: one of them begins with `*`; None where neither can.

    Where the days are whole weeks, `1#2` says the same as "a Monday from 8 to 14".
    """
    starred = write_starred(DAY, fields.days)
    if starred is not None:
        return ",".join([starred, *last]), join_items(WEEKDAY, write_plain, fields.weekdays, special)
    starred = write_starred(WEEKDAY, fields.weekdays)
    if starred is not None:
        return join_items(DAY, write_plain, fields.days, last), ",".join([starred, *special])
    weeks = find_weeks(fields.days)
    if weeks is None or last or special:
        return None
    return "*", ",".join(f"{day}#{n}" for n, day in product(weeks, sorted(fields.weekdays)))


def join_items(
    field: Field, write: Callable[[Field, frozenset[int]], str], numbers: frozenset[int], special: list[str]
) -> str:
    """Return the text of a field: its numbers and its special items."""
    return ",".join([*([write(field, numbers)] if numbers else []), *special])


def find_weeks(days: frozenset[int]) -> list[int] | None:
    """Return the weeks of the month, 1 to 5, that these days consist of; None if they are no whole weeks.

    The first Monday is the one among the days 1 to 7. The fifth is among 29 to 31.
    """
    weeks = [n for n, week in WEEKS.items() if week <= days]
    return weeks if weeks and frozenset().union(*(WEEKS[n] for n in weeks)) == days else None
