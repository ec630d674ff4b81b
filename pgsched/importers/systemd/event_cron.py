"""Translate calendar events to cron expressions.

Invariant: the expressions together name exactly the wall clocks of the event; where none do, there is no translation.

systemd asks for weekday and date, both. A cron expression asks for both only if one of the two fields begins with `*`.
So dates that are whole weeks of a month become `mon#1`, the last seven days `monL`, and Sundays alone `*/7`. For
others, such as Friday the 13th, there is no expression.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise, product

from pgsched.core.schedule import grammar
from pgsched.core.schedule.grammar import Field
from pgsched.importers.systemd.calendar_events import MICROSECONDS, CalendarEvent

NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
WEEKS = {1: range(1, 8), 2: range(8, 15), 3: range(15, 22), 4: range(22, 29), 5: range(29, 32)}
LAST_WEEK = frozenset(range(1, 8))
FEBRUARY = 2
# Sets of weekdays and days that a field beginning with `*` names.
STARRED_WEEKDAYS = {frozenset(range(0, 7, step)): f"*/{step}" for step in range(2, 8)}
STARRED_DAYS = {frozenset(range(1, 32, step)): f"*/{step}" for step in range(2, 32)}


def cron_expressions(event: CalendarEvent) -> list[str] | None:
    """Return cron expressions for an event, without its years and zone; None where no expressions mean the same.

    An empty list: no day is like that.
    """
    if any(one % MICROSECONDS for one in event.seconds):
        return None
    seconds = {one // MICROSECONDS for one in event.seconds}
    clock = [list_text(grammar.MINUTE, event.minutes), list_text(grammar.HOUR, event.hours)]
    if seconds != {0}:
        clock.insert(0, list_text(grammar.SECOND, seconds))
    days = _days(event)
    if days is None:
        return None
    return [f"{' '.join(clock)} {day} {months} {weekday}" for months, day, weekday in days]


def _days(event: CalendarEvent) -> list[tuple[str, str, str]] | None:
    """Return triples of months, days and weekdays, as fields of cron."""
    months = list_text(grammar.MONTH, event.months)
    if event.days is None or not event.from_the_end:
        pairs = _pairs(event.days, event.weekdays)
        return None if pairs is None else [(months, day, weekday) for day, weekday in pairs]
    if event.days == {1} and event.weekdays is None:
        return [(months, "L", "*")]
    if event.days == LAST_WEEK:
        weekdays = sorted(event.weekdays if event.weekdays is not None else range(7))
        return [(months, "*", ",".join(f"{NAMES[one]}L" for one in weekdays))]
    return _counted_from_the_end(event)


def _counted_from_the_end(event: CalendarEvent) -> list[tuple[str, str, str]] | None:
    """Return triples for days like the third last: a number in each month, but not in February."""
    assert event.days is not None
    by_length: dict[int, set[int]] = {}
    for month in event.months or range(1, 13):
        by_length.setdefault(monthrange(2026, month)[1], set()).add(month)
    if by_length.get(28):
        return None
    found = []
    for length, months in sorted(by_length.items()):
        pairs = _pairs(frozenset(length + 1 - one for one in event.days), event.weekdays)
        if pairs is None:
            return None
        found += [(list_text(grammar.MONTH, months), day, weekday) for day, weekday in pairs]
    return found


def _pairs(days: frozenset[int] | None, weekdays: frozenset[int] | None) -> list[tuple[str, str]] | None:
    """Return pairs of fields, day of month and day of week, that together mean: these days if they are such weekdays.

    None where there are none.
    """
    if days is not None and len(days) == 31:
        days = None
    if days is None or weekdays is None:
        return [(list_text(grammar.DAY, days, starred=False), _weekdays_text(weekdays))]
    weeks = [week for week, numbers in WEEKS.items() if days >= set(numbers)]
    if set().union(*(WEEKS[week] for week in weeks)) == days:
        return [("*", ",".join(f"{NAMES[day]}#{week}" for week, day in product(weeks, sorted(weekdays))))]
    if weekdays in STARRED_WEEKDAYS:
        return [(list_text(grammar.DAY, days, starred=False), STARRED_WEEKDAYS[weekdays])]
    if days in STARRED_DAYS:
        return [(STARRED_DAYS[days], _weekdays_text(weekdays))]
    return None


def _weekdays_text(weekdays: frozenset[int] | None) -> str:
    if weekdays is None:
        return "*"
    return ",".join(_run_text(run, lambda number: NAMES[number % 7]) for run in _runs({d or 7 for d in weekdays}))


def list_text(field: Field, values: Collection[int] | None, *, starred: bool = True) -> str:
    """Return a set of values as a field of cron: `*`, `*/5`, `0-30/10`, `1-5,9`.

    `starred`: the field may begin with `*` although it does not name all values.
    """
    if values is None or len(values) == len(field.full()):
        return "*"
    numbers = sorted(values)
    step = _common_step(numbers)
    if step is not None and step > 1 and len(numbers) > 2:
        if numbers[-1] + step > field.high:  # to the end of the field
            return f"*/{step}" if starred and numbers[0] == field.low else f"{numbers[0]}-{field.high}/{step}"
        return f"{numbers[0]}-{numbers[-1]}/{step}"
    return ",".join(_run_text(run, str) for run in _runs(numbers))


def _common_step(numbers: list[int]) -> int | None:
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    return steps.pop() if len(steps) == 1 else None


def _runs(values: Iterable[int]) -> list[list[int]]:
    """Return the values in order, as runs of neighbours."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def _run_text(run: list[int], name: Callable[[int], str]) -> str:
    if len(run) < 3:
        return ",".join(name(one) for one in run)
    return f"{name(run[0])}-{name(run[-1])}"
