"""Rules by which events of an iCalendar file repeat: RRULE, RFC 5545 3.3.10 (https://www.rfc-editor.org/rfc/rfc5545).

Invariant: a rule that is not understood whole is refused. What a rule goes through is bounded.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import count

MOST_COUNT = 20_000  # repetitions of a rule with COUNT
MOST_PERIODS = 100_000  # years, months, weeks and days that the rules of a file go through: some seconds
MOST_VALUES = 100  # of one part of a rule
DAY = timedelta(days=1)
FIRST, LAST = date(1970, 1, 1), date(8999, 12, 31)
WEEKDAYS = {name: n for n, name in enumerate(("SU", "MO", "TU", "WE", "TH", "FR", "SA"))}
BY_DAY = re.compile(r"([+-]?\d{1,2})?(SU|MO|TU|WE|TH|FR|SA)", re.ASCII)
NUMBER = re.compile(r"[+-]?\d{1,5}", re.ASCII)
RULE_PARTS = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYMONTH", "BYMONTHDAY", "BYDAY", "WKST"}


class NotUnderstood(Exception):
    """Raised for an event that cannot be read; the text says what of it."""


@dataclass(slots=True)
class Budget:
    """How many periods the rules of a file may still go through; negative once that was not enough."""

    periods: int = MOST_PERIODS


@dataclass(frozen=True, slots=True)
class Repetition:
    """An RRULE that is understood.

    `by_day`: pairs of a number (0: each) and a weekday.
    `week_start`: the weekday on which weeks begin; Sunday is 0.
    """

    freq: str
    interval: int
    count: int | None
    until: date | None
    months: tuple[int, ...]
    month_days: tuple[int, ...]
    by_day: tuple[tuple[int, int], ...]
    week_start: int = 1


def read_rule(text: str, day_of: Callable[[str], date | None]) -> Repetition:
    """Return an RRULE. Raises NotUnderstood for parts that are not understood. `day_of`: reads the value of UNTIL."""
    parts = dict(part.upper().partition("=")[::2] for part in text.split(";") if part)
    if unknown := sorted(parts.keys() - RULE_PARTS):
        raise NotUnderstood(f"RRULE with {', '.join(unknown)[:100]} is not understood")
    if parts.get("FREQ") not in ("YEARLY", "MONTHLY", "WEEKLY", "DAILY"):
        raise NotUnderstood(f"RRULE with FREQ={parts.get('FREQ', '')[:20]} is not understood")
    by_day = [BY_DAY.fullmatch(one) for one in parts["BYDAY"].split(",")] if "BYDAY" in parts else []
    days = tuple(sorted({(int(one[1] or 0), WEEKDAYS[one[2]]) for one in by_day if one is not None}))
    if len(by_day) > MOST_VALUES or parts.get("WKST", "MO") not in WEEKDAYS:
        name = "BYDAY" if len(by_day) > MOST_VALUES else "WKST"
        raise NotUnderstood(f"RRULE with {name}={parts[name][:50]} is not understood")
    rule = Repetition(
        parts["FREQ"], _numbers(parts, "INTERVAL", 1, 1000, (1,))[0],
        next(iter(_numbers(parts, "COUNT", 1, MOST_COUNT, ())), None),
        day_of(parts["UNTIL"]) if "UNTIL" in parts else None,
        _numbers(parts, "BYMONTH", 1, 12, ()), _numbers(parts, "BYMONTHDAY", -31, 31, ()), days,
        WEEKDAYS[parts.get("WKST", "MO")],
    )  # fmt: skip
    plain = rule.freq in ("WEEKLY", "DAILY")
    if None in by_day or (plain and (rule.month_days or any(n for n, _ in days))):
        raise NotUnderstood(f'RRULE "{text[:100]}" is not understood')
    if rule.freq == "YEARLY" and (days or rule.month_days) and not rule.months:
        raise NotUnderstood(f'RRULE "{text[:100]}" is not understood: it names days of each year without a month')
    return rule


def _numbers(parts: Mapping[str, str], name: str, low: int, high: int, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    if name not in parts:
        return otherwise
    texts = parts[name].split(",")
    if name in ("INTERVAL", "COUNT"):
        texts = [parts[name]]
    if len(texts) > MOST_VALUES or not all(map(NUMBER.fullmatch, texts)):
        raise NotUnderstood(f"RRULE with {name}={parts[name][:50]} is not understood")
    found = tuple(sorted({int(one) for one in texts}))
    if not all(low <= n <= high and n for n in found):
        raise NotUnderstood(f"RRULE with {name}={parts[name][:50]} is not understood")
    return found


def repetitions(rule: Repetition, first: date, span: tuple[date, date], budget: Budget) -> Iterator[date]:
    """Yield the days of a rule from its first one on, those within `span`. The first one counts, as RFC 5545 says.

    Stops once the budget is used up.
    """
    end, n = min(span[1], rule.until or LAST), 0
    days = {"YEARLY": of_year, "MONTHLY": of_month, "WEEKLY": of_week, "DAILY": of_day}[rule.freq]
    # without a count nothing depends on the periods before the span
    since = first if rule.count is not None else max(first, span[0])
    for period in count(periods_before(rule, first, since) // rule.interval):
        if periods_before(rule, first, end) < period * rule.interval:
            return
        budget.periods -= 1
        if budget.periods < 0:
            return
        found = set(days(rule, first, period * rule.interval)) | ({first} if not period else set())
        for day in sorted(found):
            if first <= day <= end:
                n += 1
                if rule.count is not None and n > rule.count:
                    return
                if day >= span[0]:
                    yield day


def periods_before(rule: Repetition, first: date, day: date) -> int:
    """Return how many years, months, weeks or days begin after those of the first day, until that of another day."""
    if rule.freq in ("YEARLY", "MONTHLY"):
        months = (day.year - first.year) * 12 + day.month - first.month
        return day.year - first.year if rule.freq == "YEARLY" else months
    return (day - first).days if rule.freq == "DAILY" else (day - week_of(rule, first)).days // 7


def of_year(rule: Repetition, first: date, years: int) -> Iterator[date]:
    """Yield the days of a year of a rule."""
    for month in rule.months or (first.month,):
        yield from days_of_month(rule, first, first.year + years, month)


def of_month(rule: Repetition, first: date, months: int) -> Iterable[date]:
    """Return the days of a month of a rule."""
    year, month = divmod(first.year * 12 + first.month - 1 + months, 12)
    return () if rule.months and month + 1 not in rule.months else days_of_month(rule, first, year, month + 1)


def days_of_month(rule: Repetition, first: date, year: int, month: int) -> list[date]:
    """Return the days of a month that BYDAY and BYMONTHDAY name; the day on which the event begins without them."""
    length = monthrange(year, month)[1]
    days = [date(year, month, n) for n in range(1, length + 1)]
    if rule.by_day:
        chosen: set[date] = set()
        for n, weekday in rule.by_day:
            same = [day for day in days if day.isoweekday() % 7 == weekday]
            place = n - 1 if n > 0 else len(same) + n
            chosen.update(same if not n else same[place : place + 1] if place >= 0 else ())
        days = [day for day in days if day in chosen]
    wanted = rule.month_days or (() if rule.by_day else (first.day,))
    return [day for day in days if not wanted or day.day in wanted or day.day - length - 1 in wanted]


def of_week(rule: Repetition, first: date, weeks: int) -> Iterator[date]:
    """Yield the days of a week of a rule."""
    begins = week_of(rule, first)
    weekdays = {weekday for _, weekday in rule.by_day} or {first.isoweekday() % 7}
    return on_weekdays(rule, (begins + (7 * weeks + n) * DAY for n in range(7)), weekdays)


def week_of(rule: Repetition, day: date) -> date:
    """Return the first day of the week of a day (WKST)."""
    return day - (day.isoweekday() - rule.week_start) % 7 * DAY


def of_day(rule: Repetition, first: date, days: int) -> Iterator[date]:
    """Yield the day of a rule that repeats each day, if the rule names it."""
    return on_weekdays(rule, [first + days * DAY], {weekday for _, weekday in rule.by_day} or set(range(7)))


def on_weekdays(rule: Repetition, days: Iterable[date], weekdays: set[int]) -> Iterator[date]:
    """Yield those of the days that fall on these weekdays, and in the months of a rule."""
    return (
        day for day in days if day.isoweekday() % 7 in weekdays and (not rule.months or day.month in rule.months)
    )  # fmt: skip
