"""Write the numbers of one field of a cron expression as text.

Invariant: the text names exactly the given numbers, in the grammar of pgsched.core.schedule.grammar.

One set of numbers has several spellings, and they differ in meaning where a field begins with `*`:

- A schedule whose second, minute or hour begins with `*` runs at every real instant whose wall clock matches.
- Where a field of days begins with `*`, a day must match both fields of days.
"""

from __future__ import annotations

from collections.abc import Collection

from pgsched.core.schedule.grammar import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "MONTH",
    "SECOND",
    "WEEKDAY",
    "Field",
    "write_numbers",
    "write_plain",
    "write_starred",
]


def write_numbers(field: Field, numbers: Collection[int]) -> str:
    """Return the shortest usual spelling: `*`, `*/5`, `1-5`, `1-9/2`, `1,15`."""
    if len(numbers) == len(field.full()):
        return "*"
    step = step_through(field, numbers)
    return f"*/{step}" if step is not None else write_plain(field, numbers)


def write_plain(field: Field, numbers: Collection[int]) -> str:
    """Return a spelling that does not begin with `*`."""
    ordered = sorted(numbers)
    if len(ordered) >= 3:
        step = ordered[1] - ordered[0]
        if step > 1 and ordered == list(range(ordered[0], ordered[-1] + 1, step)):
            return f"{ordered[0]}-{ordered[-1]}/{step}"
    return ",".join(write_ranges(ordered))


def write_starred(field: Field, numbers: Collection[int]) -> str | None:
    """Return a spelling that begins with `*`; None where there is none, as the lowest number of the field is missing.

    `*/60` is the minute 0 alone: a step as long as the field names its first number.
    """
    if len(numbers) == len(field.full()) or step_through(field, numbers) is not None:
        return write_numbers(field, numbers)
    if field.low not in numbers:
        return None
    others = sorted({*numbers} - {field.low})
    return ",".join([f"*/{len(field.full())}", *write_ranges(others)])


def step_through(field: Field, numbers: Collection[int]) -> int | None:
    """Return the step of `*/step` that names exactly these numbers, two or more; None if there is none."""
    ordered = sorted(numbers)
    if len(ordered) < 2 or ordered[0] != field.low:
        return None
    step = ordered[1] - ordered[0]
    return step if step > 1 and ordered == list(field.full()[::step]) else None


def write_ranges(ordered: list[int]) -> list[str]:
    """Return ascending numbers as items: three or more in a row as one range."""
    items: list[str] = []
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        if end - at >= 2:
            items.append(f"{ordered[at]}-{ordered[end]}")
        else:
            items += map(str, ordered[at : end + 1])
        at = end + 1
    return items
