"""The cron trigger of APScheduler as sets of numbers.

Invariant: the fields name exactly the wall clocks of the trigger, or `NotWritten` says why there are none.

What the fields mean: https://apscheduler.readthedocs.io/en/3.x/modules/triggers/cron.html. All of them must match, the
day of the month and the day of the week too. Weekdays count from Monday, 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgsched.importers.apscheduler.pickles import Known
from pgsched.importers.schedules.fields import LAST, Fields

LOWEST = {"year": 1970, "month": 1, "week": 1, "day": 1, "day_of_week": 0, "hour": 0, "minute": 0, "second": 0}
HIGHEST = {"year": 9999, "month": 12, "week": 53, "day": 31, "day_of_week": 6, "hour": 23, "minute": 59, "second": 59}
RANGES = ("RangeExpression", "MonthRangeExpression", "WeekdayRangeExpression")


class NotWritten(Exception):
    """No schedule of pgsched means this. The text says what."""


@dataclass(frozen=True, slots=True)
class Cron:
    """What a cron trigger names. `years`: None for all."""

    fields: Fields
    years: frozenset[int] | None


def read_fields(fields: Any) -> Cron:
    """Return the wall clocks of the fields of a trigger. Raises NotWritten."""
    found = dict(map(read_field, fields)) if isinstance(fields, list) and len(fields) == len(LOWEST) else {}
    if found.keys() != LOWEST.keys():
        raise NotWritten("its fields are not those of a cron trigger")
    if len(read_numbers("week", found["week"])) < HIGHEST["week"]:
        raise NotWritten("weeks of the year")
    days, last_day, nth = read_days(found["day"])
    weekdays = frozenset((one + 1) % 7 for one in read_numbers("day_of_week", found["day_of_week"]))
    if nth and len(weekdays) < 7:
        raise NotWritten("a numbered weekday of the month together with days of the week")
    written = Fields(
        seconds=read_numbers("second", found["second"]),
        minutes=read_numbers("minute", found["minute"]),
        hours=read_numbers("hour", found["hour"]),
        months=read_numbers("month", found["month"]),
        days=days,
        last_day=last_day,
        # days and numbered weekdays stand in one field: either of them
        weekdays=frozenset() if nth else weekdays,
        nth=nth,
        both=not nth,
    )
    years = read_numbers("year", found["year"])
    return Cron(written, None if len(years) > 8000 else years)


def read_field(field: Any) -> tuple[str, list[Known]]:
    """Return the name of a field and its expressions. Raises NotWritten."""
    match field:
        case Known(state={"name": str(name), "expressions": [*expressions]}) if name in LOWEST:
            if expressions and all(isinstance(one, Known) and isinstance(one.state, dict) for one in expressions):
                return name, expressions
    raise NotWritten("its fields are not those of a cron trigger")


def read_numbers(name: str, expressions: list[Known]) -> frozenset[int]:
    """Return the numbers of a field. Raises NotWritten."""
    return frozenset().union(*(numbers_of(name, one) for one in expressions))


def numbers_of(name: str, expression: Known) -> frozenset[int]:
    """Return the numbers of `*`, a number or a range, each with its step. Raises NotWritten."""
    kind, state = expression.name.rpartition(".")[2], expression.state
    step, first, last = state.get("step"), LOWEST[name], HIGHEST[name]
    if kind in RANGES:
        first = state.get("first")
        last = last if state.get("last") is None else state["last"]
    elif kind != "AllExpression":
        raise NotWritten(f"{kind} in the field {name}")
    step = 1 if step is None else step
    if not all(isinstance(one, int) for one in (first, last, step)) or step < 1:
        raise NotWritten(f"a damaged field {name}")
    return frozenset(range(max(first, LOWEST[name]), min(last, HIGHEST[name]) + 1, step))


def read_days(expressions: list[Known]) -> tuple[frozenset[int], bool, frozenset[tuple[int, int]]]:
    """Return the days of a month, whether its last day counts, and numbered weekdays. Raises NotWritten."""
    plain: list[Known] = []
    last_day, nth = False, set()
    for one in expressions:
        match one.name.rpartition(".")[2], one.state:
            case "LastDayOfMonthExpression", _:
                last_day = True
            case "WeekdayPositionExpression", {"option_num": int(n), "weekday": int(day)} if n in range(
                6
            ) and day in range(7):
                nth.add(((day + 1) % 7, LAST if n == 5 else n + 1))
            case _:
                plain.append(one)
    days = read_numbers("day", plain) if plain else frozenset()
    if len(days) == 31:  # every day: the others add none
        return days, False, frozenset()
    return days, last_day, frozenset(nth)
