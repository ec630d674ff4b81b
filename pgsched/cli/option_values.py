"""Values of options: text, `@FILE` or standard input read as JSON, and --set COLUMN=VALUE."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pgsched.core.input_values import LONGEST, json_arguments, refuse_time_of_day
from pgsched.errors import InputError


def parse_arguments(text: str | None) -> Any:
    """Parse the JSON of --args: the text itself, the file of `@FILE`, or standard input for `-`."""
    return None if text is None else json_arguments(read_source(text))


def read_source(text: str) -> str:
    """Return the text that an option names: standard input for `-`, the file of `@FILE`, else the text itself.

    At most LONGEST + 1 characters are read: enough to refuse a text that is too long.
    Raises InputError where the file cannot be read.
    """
    try:
        if text == "-":
            return sys.stdin.read(LONGEST + 1)
        if text.startswith("@"):
            with Path(text[1:]).open(encoding="utf-8") as file:
                return file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"args: cannot read {text}: {error}", "args") from None
    return text


def split_assignments(given: Iterable[str] | None) -> dict[str, str]:
    """Return the names and texts of `NAME=VALUE`. Raises InputError for any other text, and for a repeated name."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f'arg: "{text}" is not NAME=VALUE', "arg")
        if name in found:
            raise InputError(f"arg: {name} is given twice", "arg")
        found[name] = value
    return found


def merge_columns(assignments: Iterable[str] | None, options: dict[str, Any]) -> dict[str, Any]:
    """Merge the columns of --set into the columns that other options set.

    An empty value in --set becomes None, which puts the default of the column back.
    Raises InputError for a column that is given twice.
    """
    found = {column: value for column, value in options.items() if value is not None}
    for assignment in assignments or ():
        column, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f'set: "{assignment}" is not column=value', "set")
        if column in found:
            raise InputError(f"{column}: given twice", column)
        found[column] = (parse_arguments(value) if column == "args" else value) if value else None
    refuse_time_of_day("finish_by", found.get("finish_by"))
    return found
