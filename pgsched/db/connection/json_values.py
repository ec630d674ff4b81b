"""The one place where JSON of the database becomes a value.

Invariant: reading a row raises nothing, whatever JSON it holds. PostgreSQL takes numbers of more digits and values of
more levels than Python reads or writes; such a value comes as an `UnreadableJson`, a text that says so. Who only shows
rows shows that text; a program that asks for one value gets its error from `program_value`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.types.json import set_json_loads

from pgsched.errors import InputError

DEEPEST = 200  # levels; writing takes Python several calls for each
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]')


class UnreadableJson(str):
    """Stands for the value of `text`, which there is none of, because of `why`."""

    text: str
    why: str

    @classmethod
    def of(cls, text: str, why: str) -> UnreadableJson:
        """What stands for it."""
        made = cls(f"(this JSON cannot be read: {why})")
        made.text, made.why = text, why
        return made


def read_json(text: str | bytes) -> Any:
    """The value, or why there is none."""
    text = text if isinstance(text, str) else text.decode()
    if text.count("[") + text.count("{") > DEEPEST and depth(text) > DEEPEST:
        return UnreadableJson.of(text, f"it has more than {DEEPEST} levels")
    return parsed(text)


def parsed(text: str) -> Any:
    """The value, however deep it is, or why there is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of more than 4,300 digits; a thousand levels
        return UnreadableJson.of(text, str(error))


def read_safely(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Let a connection of ours read JSON so."""
    set_json_loads(read_json, conn)


def program_value(found: Any) -> Any:
    """A value for a program that cannot go on with a text instead: also one of many levels. Raises InputError."""
    if not isinstance(found, UnreadableJson):
        return found
    value = parsed(found.text)
    if isinstance(value, UnreadableJson):
        raise InputError(f"result: Python cannot read this JSON: {value.why}", "result")
    return value


def depth(text: str) -> int:
    """How many levels a JSON text has."""
    level = deepest = 0
    for found in BRACKETS.finditer(text):
        if found[0] in "[{":
            level += 1
            deepest = max(deepest, level)
        elif found[0] in "]}":
            level -= 1
    return deepest
