"""Parse schedule expressions to a canonical form.

Invariant: the cron engine only sees expressions that this grammar accepts, in canonical form.

The grammar is strict on purpose: a typing error is refused with field and reason, and never guessed at; at most the
error says what may have been meant (hints.py). The database has the same grammar in
`migrations/1004_arrive/21_schedules.sql`; always change both.

Several cron expressions may be given, separated by `;`. They are one schedule: the union of their slots. `@every` and
`@after` stand alone.

`nW` means the weekday nearest to day n inside the month, or nearest to the last day when the month is shorter. So `31W`
is `LW`. `W15` and `L5`, as croniter also writes `15W` and `5L`, mean the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from pgsched.core.schedule import hints
from pgsched.errors import ScheduleError

MAX_LENGTH = 512
MAX_INTERVAL = timedelta(days=10_000)
SEPARATOR = ";"
MAX_PARTS = 20
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTH_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_WEEKDAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_PRINTABLE = re.compile(r"[\x20-\x7e\t]*")
_DIGITS = re.compile(r"[0-9]+")
_ZONE_PREFIX = re.compile(r"(cron_)?tz=")
_RANDOM = re.compile(r"[hr](\(.*\))?(/.*)?")
_NEAREST = re.compile(r"([0-9]+)w|w([0-9]+)")
_NTH = re.compile(r"([0-9a-z]+)#(.*)")
_LAST = re.compile(r"([0-9]+|[a-z]{3})l|l([0-9]+)")
_DURATION = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")


@dataclass(frozen=True, slots=True)
class Field:
    """The values that one field of an expression accepts.

    `top`: the largest value that may be typed. `high`: the largest value that `*` stands for.
    """

    name: str
    low: int
    high: int
    top: int
    names: dict[str, int]

    def full(self) -> range:
        """Return all values that `*` stands for."""
        return range(self.low, self.high + 1)


SECOND = Field("second", 0, 59, 59, {})
MINUTE = Field("minute", 0, 59, 59, {})
HOUR = Field("hour", 0, 23, 23, {})
DAY = Field("day of month", 1, 31, 31, {})
MONTH = Field("month", 1, 12, 12, _MONTHS)
WEEKDAY = Field("day of week", 0, 6, 7, _WEEKDAYS)


@dataclass(frozen=True, slots=True)
class Cron:
    """An accepted cron expression.

    `days`: alternatives, each a pair (day of month, day of week) that must both match, as canonical text.
    `wildcard`: the second, minute or hour field starts with `*`.
    """

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    months: str
    days: tuple[tuple[str, str], ...]
    wildcard: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """An accepted duration: `@every` (`repeats`) or `@after`."""

    length: timedelta
    repeats: bool


@dataclass(frozen=True, slots=True)
class Several:
    """Several accepted cron expressions, each with its text, in the order in which they were typed."""

    parts: tuple[tuple[str, Cron], ...]


@lru_cache(maxsize=4096)
def parse_expression(expression: str) -> Cron | Interval | Several:
    """Return the canonical form of an expression. Raises ScheduleError, with a hint where one can be guessed.

    Equal expressions are parsed once.
    """
    try:
        return _parse(expression)
    except ScheduleError as error:
        if len(expression) > MAX_LENGTH or not _PRINTABLE.fullmatch(expression):
            raise
        hint = hints.find_hint(expression, _is_accepted)
        raise ScheduleError(str(error.field), error.reason + hint) from None


def _is_accepted(expression: str) -> bool:
    try:
        _parse(expression)
    except ScheduleError:
        return False
    return True


def _parse(expression: str) -> Cron | Interval | Several:
    if len(expression) > MAX_LENGTH:
        raise ScheduleError("schedule", f"longer than {MAX_LENGTH} characters")
    if not _PRINTABLE.fullmatch(expression):
        raise ScheduleError("schedule", "only printable ASCII is accepted")
    if SEPARATOR in expression:
        return _several(expression)
    return _single(expression)


def crons_of(expression: str) -> tuple[Cron, ...]:
    """Return the cron expressions of a schedule; none for `@every` and `@after`. Raises ScheduleError."""
    read = parse_expression(expression)
    if isinstance(read, Several):
        return tuple(cron for _, cron in read.parts)
    return (read,) if isinstance(read, Cron) else ()


def _several(expression: str) -> Several:
    texts = [text.strip() for text in expression.split(SEPARATOR)]
    if len(texts) > MAX_PARTS:
        raise ScheduleError("schedule", f"{len(texts)} expressions, at most {MAX_PARTS} are allowed")
    return Several(tuple((text, _part(text)) for text in texts))


def _part(text: str) -> Cron:
    """Return one of several expressions. The error names the expression that it is about."""
    if not text:
        raise ScheduleError("schedule", f'an expression beside "{SEPARATOR}" is empty')
    first = text.split(maxsplit=1)[0]
    if first.lower() in ("@every", "@after"):
        raise ScheduleError("schedule", f'{first.lower()} stands alone, without "{SEPARATOR}"')
    try:
        read = _single(text)
    except ScheduleError as error:
        raise ScheduleError(str(error.field), f'{error.reason} (in "{text}")') from None
    assert isinstance(read, Cron)
    return read


def _single(expression: str) -> Cron | Interval:
    words = expression.split()
    first = words[0].lower() if words else ""
    if first.startswith("@"):
        if first in ("@every", "@after"):
            return _interval(first, words[1:])
        words = _macro(first, words)
    if _ZONE_PREFIX.match(first):
        raise ScheduleError("schedule", f'"{words[0]}" is not supported, set timezone instead')
    if len(words) not in (5, 6):
        raise ScheduleError("schedule", f"expected 5 or 6 fields, got {len(words)}")
    return _cron(words)


def _macro(first: str, words: list[str]) -> list[str]:
    if first == "@reboot":
        raise ScheduleError("schedule", f'"{words[0]}" is not supported')
    if first not in MACROS:
        raise ScheduleError("schedule", f'"{words[0]}" is not a known macro')
    if len(words) > 1:
        raise ScheduleError("schedule", f"{words[0]} takes nothing after it")
    return MACROS[first].split()


def _interval(first: str, words: list[str]) -> Interval:
    if len(words) != 1:
        raise ScheduleError("schedule", f"{first} needs one duration such as 90s or 1h30m")
    match = _DURATION.fullmatch(words[0].lower())
    if match is None:
        raise ScheduleError("schedule", f'"{words[0]}" is not a duration such as 90s or 1h30m')
    total = sum(int(n or 0) * unit for n, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
    if total < 1:
        raise ScheduleError("schedule", f'"{words[0]}" is shorter than 1s')
    if total > MAX_INTERVAL.total_seconds():
        raise ScheduleError("schedule", f'"{words[0]}" is longer than {MAX_INTERVAL.days}d')
    return Interval(timedelta(seconds=total), repeats=first == "@every")


def _cron(words: list[str]) -> Cron:
    second, minute, hour, day, month, weekday = words if len(words) == 6 else ["0", *words]
    seconds, minutes, hours = _numbers(SECOND, second), _numbers(MINUTE, minute), _numbers(HOUR, hour)
    days = _days_of_month(day)
    months = _text(MONTH, _numbers(MONTH, month))
    weekdays = _days_of_week(weekday)
    if day.startswith("*") or weekday.startswith("*"):
        pairs = [(d, w) for d in days for w in weekdays if _can_meet(d, w)]
    else:
        pairs = [(d, "*") for d in days] + [("*", w) for w in weekdays]
    wildcard = any(text.startswith("*") for text in (second, minute, hour))
    return Cron(seconds, minutes, hours, months, tuple(dict.fromkeys(pairs)), wildcard)


def _can_meet(day: str, weekday: str) -> bool:
    """Check whether both fields can match one day: a day with W is never a Saturday or Sunday."""
    return weekday == "*" or not day.endswith("w") or any(item.strip("l")[0] not in "06" for item in weekday.split(","))


def _days_of_month(text: str) -> list[str]:
    """Return canonical alternatives, because the engine does not accept W beside other days."""
    plain: set[int] = set()
    last, nearest = False, []
    for item in _items(DAY, text):
        lower = item.lower()
        if lower == "l":
            last = True
        elif lower == "lw":
            nearest.append("31w")
        elif match := _NEAREST.fullmatch(lower):
            number = match[1] or match[2]
            nearest.append(f"{_value(DAY, number, number)}w")
        else:
            plain |= _numbers_of(DAY, item)
    text = _text(DAY, plain)
    if text == "*":
        return ["*"]
    # The engine takes a list of 31 items for `*`, even if one of them is `l`.
    alternatives = [text, "l"] if last and len(plain) == 30 else [f"{text},l".strip(",") if last else text]
    return list(filter(None, [*alternatives, ",".join(dict.fromkeys(nearest))]))


def _days_of_week(text: str) -> list[str]:
    """Return canonical alternatives, because the engine does not accept `d#n` or `dL` beside plain weekdays."""
    plain: set[int] = set()
    special: list[str] = []
    for item in _items(WEEKDAY, text):
        if match := _NTH.fullmatch(item.lower()):
            day = _value(WEEKDAY, item[: match.end(1)], match[1]) % 7
            if not (_DIGITS.fullmatch(match[2]) and 1 <= int(match[2]) <= 5):
                raise ScheduleError(WEEKDAY.name, f'"{item}" needs a number from 1 to 5 after #')
            special.append(f"{day}#{int(match[2])}")
        elif match := _LAST.fullmatch(item.lower()):
            typed = item[:-1] if match[1] else item[1:]
            special.append(f"l{_value(WEEKDAY, typed, typed.lower()) % 7}")
        else:
            plain |= _numbers_of(WEEKDAY, item)
    listed = _text(WEEKDAY, plain)
    if listed == "*":
        return ["*"]
    return list(filter(None, [listed, ",".join(dict.fromkeys(special))]))


def _numbers(field: Field, text: str) -> frozenset[int]:
    if text == "*":
        return frozenset(field.full())
    return frozenset(n for item in _items(field, text) for n in _numbers_of(field, item))


def _items(field: Field, text: str) -> list[str]:
    """Return the comma-separated items of a field. Raises ScheduleError for unsupported forms."""
    items = text.split(",")
    for item in items:
        if not item:
            raise ScheduleError(field.name, f'empty item in "{text}"')
        if "?" in item or _RANDOM.fullmatch(item.lower()):
            raise ScheduleError(field.name, f'"{item}" is not supported')
    return items


def _numbers_of(field: Field, item: str) -> set[int]:
    """Return the numbers of one item: a number or name, a range, `*`, each with an optional step."""
    body, slash, step_text = item.partition("/")
    step = _step(field, step_text) if slash else 1
    if body == "*":
        return set(field.full()[::step])
    low_text, dash, high_text = body.partition("-")
    if dash and low_text and high_text:
        return _range(field, low_text, high_text, step)
    low = _value(field, body, body.lower())
    if field is WEEKDAY:
        low %= 7
    return set(range(low, field.high + 1, step)) if slash else {low}


def _range(field: Field, low_text: str, high_text: str, step: int) -> set[int]:
    low, high = _value(field, low_text, low_text.lower()), _value(field, high_text, high_text.lower())
    if field is WEEKDAY and high == 0 != low:
        high = 7
    if low > high:
        raise ScheduleError(field.name, f"range {low_text}-{high_text} runs backwards")
    numbers = range(low, high + 1, step)
    return {n % 7 for n in numbers} if field is WEEKDAY else set(numbers)


def _step(field: Field, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ScheduleError(field.name, f'step "{text}" is not a number')
    step, size = int(text), len(field.full())
    if step == 0:
        raise ScheduleError(field.name, "step 0 must be at least 1")
    if step > size:
        raise ScheduleError(field.name, f"step {text} is larger than the field ({size} values)")
    return step


def _value(field: Field, typed: str, text: str) -> int:
    """Return the number of a value or name. `typed` is the user's spelling, for the error text."""
    if text in field.names:
        return field.names[text]
    if not _DIGITS.fullmatch(text):
        raise ScheduleError(field.name, f'"{typed}" is not a number{" or a name" if field.names else ""}')
    if not field.low <= int(text) <= field.top:
        raise ScheduleError(field.name, f"{typed} is out of range {field.low}-{field.top}")
    return int(text)


def _text(field: Field, numbers: frozenset[int] | set[int]) -> str:
    if len(numbers) == len(field.full()):
        return "*"
    return ",".join(map(str, sorted(numbers)))
