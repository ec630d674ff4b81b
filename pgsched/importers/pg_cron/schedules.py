"""Schedules of pg_cron as sets of numbers.

Invariant: a schedule is read as pg_cron's own parser reads it, or `SyntaxRefused` says what is wrong with it.

Sources: README.md ("Cron syntax") and src/entry.c of https://github.com/citusdata/pg_cron, which is Vixie's parser with
`$` for the last day. It reads five fields and ignores what follows them: a sixth field is no seconds.
"""

from __future__ import annotations

import re

from pgsched.core.schedule.grammar import MACROS
from pgsched.importers.schedules.fields import Fields
from pgsched.importers.schedules.numbers import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field

LONGEST = 1000  # characters, of its buffer
SECONDS = re.compile(r"\s*\+?([0-9]{1,9})\s*seconds?\s*", re.IGNORECASE)
ITEM = re.compile(r"(?:(\*)|([0-9a-z]{1,9})(?:-([0-9a-z]{1,9}))?)(?:/([0-9]{1,9}))?", re.IGNORECASE)
AT_REBOOT = ("@reboot", "@restart")


class SyntaxRefused(Exception):
    """pg_cron does not accept the schedule, or nobody can say how it reads it."""


def read_seconds(text: str) -> int | None:
    """Return the interval of `30 seconds`: 1 to 59; None for another schedule."""
    found = SECONDS.fullmatch(text[:LONGEST])
    return int(found[1]) if found and 0 < int(found[1]) < 60 else None


def read_schedule(text: str, *, match_both: bool = False) -> tuple[Fields, str]:
    """Return the fields of a schedule, and what pg_cron ignores at its end. Raises SyntaxRefused.

    `match_both`: the setting cron.match_dom_and_dow.
    """
    if len(text) >= LONGEST:
        raise SyntaxRefused(f"longer than {LONGEST - 1} characters")
    words = text.split(None, 5)
    if words and words[0] in MACROS:
        ignored = " ".join(words[1:])
        words = MACROS[words[0]].split()
    else:
        ignored = words[5].strip() if len(words) > 5 else ""
    if len(words) < 5:
        raise SyntaxRefused(f"{len(words)} fields instead of 5")
    minute, hour, day, month, weekday = words[:5]
    last_day = day == "$"
    fields = Fields(
        minutes=read_field(MINUTE, minute),
        hours=read_field(HOUR, hour),
        days=frozenset() if last_day else read_field(DAY, day),
        last_day=last_day,
        months=read_field(MONTH, month),
        weekdays=read_field(WEEKDAY, weekday),
        both=match_both or day.startswith("*") or weekday.startswith("*"),
    )
    return fields, ignored


def read_field(field: Field, text: str) -> frozenset[int]:
    """Return the numbers of a field. Raises SyntaxRefused."""
    return frozenset().union(*(read_item(field, item) for item in text.split(",")))


def read_item(field: Field, item: str) -> set[int]:
    """Return the numbers of an item. Raises SyntaxRefused."""
    found = ITEM.fullmatch(item)
    if found is None:
        raise SyntaxRefused(f'"{item[:40]}" in the field {field.name}')
    star, low_text, high_text, step_text = found.groups()
    if not star and not high_text and step_text:
        raise SyntaxRefused(f'"{item}" in the field {field.name}: a step needs a range')
    low = field.low if star else read_number(field, low_text)
    high = field.top if star else read_number(field, high_text or low_text)
    step = int(step_text) if step_text else 1
    if low > high:
        raise SyntaxRefused(f'"{item}" in the field {field.name} runs backwards')
    if not 1 <= step <= field.top:
        raise SyntaxRefused(f'the step of "{item}" in the field {field.name}')
    numbers = range(low, high + 1, step)
    return {number % 7 for number in numbers} if field is WEEKDAY else set(numbers)


def read_number(field: Field, text: str) -> int:
    """Return a number or a name of three letters. Raises SyntaxRefused."""
    number = field.names.get(text.lower())
    if number is None and text.isdigit():
        number = int(text)
    if number is None or not field.low <= number <= field.top:
        raise SyntaxRefused(f'"{text}" in the field {field.name}')
    return number
