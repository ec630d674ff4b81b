"""The types of dates on which jobs do not run: a job's own, and the times of a calendar."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from pgsched.core.input_values import parse_dates
from pgsched.core.jobs_file.model.types import Text, Type, WrongValue, expect_text, shorten_value
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

MOST_STRETCHES = 5000  # of excluded dates of one job, and of times of one calendar
# Times of one calendar that repeat: on weekdays or at times of the day, not bound to so few days. The database has the
# same limits (pgsched.calendar_times_most).
MOST_REPEATED, FEW_DAYS = 100, timedelta(days=31)
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIRST, LAST = date(1970, 1, 1), date(8999, 12, 31)
CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?", re.ASCII)
END_OF_DAY = "24:00:00"
TIME_KEYS = ("from", "until", "weekdays", "from_time", "until_time", "reason")


class Dates(NamedTuple):
    """Excluded dates of a job: the first, the last, and the reason."""

    first: date
    last: date
    reason: str | None


class CalendarTime(NamedTuple):
    """One stretch of a calendar, as a row of calendar_times has it; None: no bound.

    `from_time`, `until_time`: texts such as `06:00:00` and `24:00:00`, which have the order of the times.
    """

    first: date | None
    last: date | None
    weekdays: tuple[int, ...] | None
    from_time: str | None
    until_time: str | None
    reason: str | None


def read_list(value: Any, item: Callable[[Any], Any]) -> list[Any]:
    """Return the values that `item` reads from a list. Raises WrongValue."""
    if not isinstance(value, list):
        raise WrongValue(f"expected a list, got {shorten_value(value)}")
    if len(value) > MOST_STRETCHES:
        raise WrongValue(f"{len(value)} values, at most {MOST_STRETCHES} are allowed")
    return [item(one) for one in value]


def order(value: Any) -> Any:
    """Return a key that sorts tuples that may hold None: None comes first."""
    return tuple((part is not None, part) for part in value)


class ExcludedDates(Type):
    """Texts such as `2026-12-24..2026-12-26: Christmas`, or dates; the value has them in order."""

    _reason = Text(200)

    def read(self, value: Any) -> tuple[Dates, ...]:
        """Read the list. Raises WrongValue where two begin on the same date."""
        found = sorted(read_list(value, self._read_one), key=order)
        for one, other in pairwise(found):
            if one.first == other.first:
                raise WrongValue(f"{one.first} begins two stretches")
        return tuple(found)

    def _read_one(self, value: Any) -> Dates:
        if isinstance(value, date) and not isinstance(value, datetime):
            return Dates(check_date(value), value, None)
        dates, colon, reason = expect_text(value).partition(": ")
        try:
            first, last = parse_dates(dates)
        except InputError as error:
            raise WrongValue(str(error).removeprefix("dates: ")) from None
        return Dates(check_date(first), check_date(last), self._reason.read(reason) if colon else None)

    def show(self, value: tuple[Dates, ...]) -> list[str]:
        """Return the texts."""
        return [
            f"{one.first}{'' if one.last == one.first else f'..{one.last}'}"
            f"{'' if one.reason is None else f': {one.reason}'}"
            for one in value
        ]

    def load(self, value: Any) -> tuple[Dates, ...]:
        """Read the rows of job_calendars: arrays of first date, last date and reason."""
        found = (Dates(date.fromisoformat(a), date.fromisoformat(b), reason) for a, b, reason in value or ())
        return tuple(sorted(found, key=order))

    def send(self, value: tuple[Dates, ...]) -> list[list[str | None]]:
        """Return the rows."""
        return [[str(one.first), str(one.last), one.reason] for one in value]


class CalendarTimes(Type):
    """The stretches of a calendar: mappings with from, until, weekdays, from_time, until_time and reason."""

    _reason = Text(200)

    def read(self, value: Any) -> tuple[CalendarTime, ...]:
        """Read the list. Raises WrongValue where too many times repeat."""
        found = tuple(sorted(set(read_list(value, self._read_one)), key=order))
        if (repeated := sum(map(repeats, found))) > MOST_REPEATED:
            raise WrongValue(
                f"{repeated} times repeat: have weekdays or hours, and no dates, or dates more than"
                f" {FEW_DAYS.days} days apart; at most {MOST_REPEATED} are allowed"
            )
        if (most := most_on_one_date(found)) > MOST_REPEATED:
            raise WrongValue(f"{most} times of the day on one date; at most {MOST_REPEATED} are allowed")
        return found

    def _read_one(self, value: Any) -> CalendarTime:
        if not isinstance(value, dict):
            raise WrongValue(f"expected a mapping such as {{from: 2026-12-25}}, got {shorten_value(value)}")
        for key in value:
            if key not in TIME_KEYS:
                raise WrongValue(f'"{key[:60]}" is not one of {", ".join(TIME_KEYS)}{did_you_mean(key, TIME_KEYS)}')
        given = {key: one for key, one in value.items() if one is not None}
        first, last = (read_date(given[key]) if key in given else None for key in ("from", "until"))
        if first is None and last is not None:
            raise WrongValue("until needs from")
        if first is not None and (last := last or first) < first:
            raise WrongValue(f"until: {last} is earlier than from, {first}")
        begins, ends = (read_clock(given[key]) if key in given else None for key in ("from_time", "until_time"))
        if (begins is None) != (ends is None):
            raise WrongValue("from_time and until_time go together")
        if begins is not None and ends is not None and ends <= begins:
            raise WrongValue(f"until_time: {short_clock(ends)} is not later than from_time, {short_clock(begins)}")
        weekdays = read_weekdays(given["weekdays"]) if "weekdays" in given else None
        if first is None and weekdays is None and begins is None:
            raise WrongValue("says neither dates nor weekdays nor times of the day")
        reason = self._reason.read(given["reason"]) if "reason" in given else None
        return CalendarTime(first, last, weekdays, begins, ends, reason)

    def show(self, value: tuple[CalendarTime, ...]) -> list[dict[str, Any]]:
        """Return the mappings."""
        return [
            {
                key: one
                for key, one in zip(TIME_KEYS, self._shown(found), strict=True)
                if one is not None and not (key == "until" and found.last == found.first)
            }
            for found in value
        ]

    def _shown(self, one: CalendarTime) -> tuple[Any, ...]:
        weekdays = None if one.weekdays is None else [WEEKDAYS[day] for day in one.weekdays]
        dates = [None if day is None else str(day) for day in (one.first, one.last)]
        clocks = [None if clock is None else short_clock(clock) for clock in (one.from_time, one.until_time)]
        return (*dates, weekdays, *clocks, one.reason)

    def load(self, value: Any) -> tuple[CalendarTime, ...]:
        """Read the rows of calendar_times: objects with their columns."""
        return tuple(sorted({calendar_time(row) for row in value or ()}, key=order))

    def send(self, value: tuple[CalendarTime, ...]) -> list[dict[str, Any]]:
        """Return the rows."""
        columns = ("from_date", "until_date", "weekdays", "from_time", "until_time", "reason")
        return [
            {
                column: part
                if isinstance(part, str) or part is None
                else list(part)
                if isinstance(part, tuple)
                else str(part)
                for column, part in zip(columns, one, strict=True)
            }
            for one in value
        ]


def calendar_time(row: dict[str, Any]) -> CalendarTime:
    """Return the stretch of a row of calendar_times."""
    first, last = (row[key] and date.fromisoformat(row[key]) for key in ("from_date", "until_date"))
    begins, ends = (row[key] and read_clock(row[key]) for key in ("from_time", "until_time"))
    weekdays = None if row["weekdays"] is None else tuple(sorted(set(row["weekdays"])))
    return CalendarTime(first, last, weekdays, begins, ends, row["reason"])


def most_on_one_date(times: Iterable[CalendarTime]) -> int:
    """Return the most times of the day that stretches of at most FEW_DAYS have on one date."""
    steps = Counter[date]()
    for one in times:
        if one.first is not None and one.last is not None and one.from_time is not None and not repeats(one):
            steps[one.first] += 1
            steps[one.last + timedelta(days=1)] -= 1
    return max(accumulate(steps[day] for day in sorted(steps)), default=0)


def repeats(one: CalendarTime) -> bool:
    """Check whether a stretch repeats: on weekdays or at times of the day, of many days."""
    whole_days = one.weekdays is None and one.from_time is None
    return not whole_days and (one.first is None or one.last is None or one.last - one.first > FEW_DAYS)


def check_date(value: date) -> date:
    """Return a date between 1970 and 9000. Raises WrongValue for another one."""
    if not FIRST <= value <= LAST:
        raise WrongValue(f"{value} is not a date between 1970 and 9000")
    return value


def read_date(value: Any) -> date:
    """Return a date, from text or as TOML has it. Raises WrongValue."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return check_date(value)
    try:
        return check_date(date.fromisoformat(value))
    except (TypeError, ValueError):
        raise WrongValue(f"{shorten_value(value)} is not a date such as 2026-12-25") from None


def read_clock(value: Any) -> str:
    """Return a time of the day up to 24:00 as text with seconds, from text or as TOML has it. Raises WrongValue."""
    found = CLOCK.fullmatch(str(value.replace(tzinfo=None)) if isinstance(value, time) else str(value))
    if found is not None and isinstance(value, (str, time)):
        hour, minute, second = (int(part or 0) for part in found.groups()[:3])
        fraction = (found[4] or "").rstrip("0")
        text = f"{hour:02}:{minute:02}:{second:02}" + (f".{fraction}" if fraction else "")
        if (hour < 24 and minute < 60 and second < 60) or text == END_OF_DAY:
            return text
    raise WrongValue(f"{shorten_value(value)} is not a time of the day such as 06:00")


def short_clock(text: str) -> str:
    """Return a time of the day without seconds that are zero."""
    return text.removesuffix(":00")


def read_weekdays(value: Any) -> tuple[int, ...]:
    """Return the weekdays of a list of names or numbers, 0 is Sunday. Raises WrongValue."""
    if not isinstance(value, list) or not value:
        raise WrongValue(f"weekdays: expected a list such as [sat, sun], got {shorten_value(value)}")
    found = set()
    for one in value:
        name = one.lower()[:3] if isinstance(one, str) else None
        if name in WEEKDAYS:
            found.add(WEEKDAYS.index(name))
        elif isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= 6:
            found.add(one)
        else:
            raise WrongValue(f"weekdays: {shorten_value(one)} is not one of {', '.join(WEEKDAYS)}, nor 0 to 6")
    return tuple(sorted(found))
