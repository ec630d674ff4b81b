"""The arguments of a task in another scheduler, as the column `args`.

Invariant: what is written is JSON, of a bounded size; whatever is left out has a remark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from pgsched.importers.imported import Reason, Remark

MOST_VALUES = 50_000
MOST_CHARACTERS = 1024 * 1024  # the bytes that the arguments of a run may have, encoded
DEEPEST = 100
LONGEST_SHOWN = 300  # characters of arguments that a remark repeats


def name_class(value: Any) -> str:
    """Return the name of the class of a value."""
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")[:100]


def plain(value: Any, describe: Callable[[Any], str] = name_class) -> Any:
    """Return a value as JSON has it: tuples as lists. Raises ValueError, whose text is the end of a sentence.

    `describe`: names what JSON cannot hold. A value may contain itself, or one part a million times.
    """
    left, characters = [MOST_VALUES], [MOST_CHARACTERS]

    def copy(one: Any, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > DEEPEST:
            raise ValueError("are too many or nested too deeply")
        if isinstance(one, str):
            characters[0] -= len(one)
            if characters[0] < 0:
                raise ValueError(f"have more than {MOST_CHARACTERS:,} characters")
            if "\0" in one or (not one.isprintable() and any("\ud800" <= char <= "\udfff" for char in one)):
                raise ValueError("hold a character that PostgreSQL cannot store")
            return str(one)
        if one is None or isinstance(one, bool):
            return one
        if (isinstance(one, int) and abs(one) < 10**100) or (isinstance(one, float) and math.isfinite(one)):
            return one
        if type(one) in (list, tuple):
            return [copy(item, depth + 1) for item in one]
        if isinstance(one, dict) and all(isinstance(key, str) for key in one):
            return {copy(key, depth + 1): copy(item, depth + 1) for key, item in one.items()}
        raise ValueError(f"hold {describe(one)}, which is not JSON")

    return copy(value, 0)


def add_arguments(
    columns: dict[str, Any],
    positional: Any,
    named: Any,
    *,
    parameters: Sequence[str] | None = None,
    describe: Callable[[Any], str] = name_class,
) -> list[Remark]:
    """Add the arguments: a list of positional ones, or an object of named ones; return the remarks.

    pgsched has no job with both. `parameters`: the names of the task's parameters, which make named ones of the first.
    """
    remarks = []
    values: list[Any] = []
    for given, kind in ((positional, "args"), (named, "kwargs")):
        try:
            values.append(plain(given, describe))
        except ValueError as error:
            values.append(None)
            remarks.append(Remark(Reason.ARGUMENTS, f"{kind} {error}: they are left out", "task"))
    first, second = values
    if first and second:
        names = list(parameters or ())[: len(first)]
        if len(names) == len(first) and not {*names} & {*second}:
            second = {**dict(zip(names, first, strict=True)), **second}
        else:
            text = json.dumps(first)[:LONGEST_SHOWN]
            remarks.append(Remark(Reason.ARGUMENTS, f"the positional ones are left out: {text}", "args"))
    found = second or first
    if found:
        columns["args"] = found
    return remarks
