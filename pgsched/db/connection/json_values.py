"""Read JSON from the database as Python values.

Invariant: reading a row never raises, whatever JSON it holds. PostgreSQL accepts numbers with more digits, and values
with more levels, than Python can read or write. These values become an `UnreadableJson`, a text that says so. Code that
shows rows shows that text. A program that asks for one value gets an error from `program_value`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.types.json import set_json_loads

from pgsched.errors import InputError

DEEPEST = 200  # levels; writing takes Python several nested calls for each level
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]')


class UnreadableJson(str):
    """A placeholder for a JSON value that Python cannot read.

    `text`: the JSON. `why`: the reason.
    """

    text: str
    why: str

    @classmethod
    def of(cls, text: str, why: str) -> UnreadableJson:
        """Build the placeholder for a JSON text."""
        placeholder = cls(f"(this JSON cannot be read: {why})")
        placeholder.text, placeholder.why = text, why
        return placeholder


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, or an `UnreadableJson`."""
    text = text if isinstance(text, str) else text.decode()
    if text.count("[") + text.count("{") > DEEPEST and json_depth(text) > DEEPEST:
        return UnreadableJson.of(text, f"it has more than {DEEPEST} levels")
    return parse_json(text)


def parse_json(text: str) -> Any:
    """Return the value of a JSON text of any depth, or an `UnreadableJson`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of more than 4,300 digits, or a thousand levels
        return UnreadableJson.of(text, str(error))


def read_safely(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Make a connection read JSON with `read_json`."""
    set_json_loads(read_json, conn)


def program_value(found: Any, name: str = "result") -> Any:
    """Return a value for a program, however many levels it has. Raises InputError where Python cannot read it.

    `name`: what the error calls it.
    """
    if not isinstance(found, UnreadableJson):
        return found
    value = parse_json(found.text)
    if isinstance(value, UnreadableJson):
        raise InputError(f"{name}: Python cannot read this JSON: {value.why}", name)
    return value


def json_depth(text: str) -> int:
    """Return how many levels a JSON text has."""
    level = deepest = 0
    for found in BRACKETS.finditer(text):
        if found[0] in "[{":
            level += 1
            deepest = max(deepest, level)
        elif found[0] in "]}":
            level -= 1
    return deepest
