"""What options name beside their own text, a file or standard input; and the columns that --set gives."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pgsched.core.input_values import LONGEST, json_arguments
from pgsched.errors import InputError


def arguments(text: str | None) -> Any:
    """The JSON of --args: itself, `@file`, or `-` for standard input."""
    return None if text is None else json_arguments(source(text))


def source(text: str) -> str:
    """The text that an option names."""
    try:
        if text == "-":
            return sys.stdin.read(LONGEST + 1)
        if text.startswith("@"):
            with Path(text[1:]).open(encoding="utf-8") as file:
                return file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"args: cannot read {text}: {error}", "args") from None
    return text


def columns(assignments: Iterable[str] | None, options: dict[str, Any]) -> dict[str, Any]:
    """The columns that --set and the options give; an empty text in --set puts the default back."""
    found = {column: value for column, value in options.items() if value is not None}
    for assignment in assignments or ():
        column, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f'set: "{assignment}" is not column=value', "set")
        if column in found:
            raise InputError(f"{column}: given twice", column)
        found[column] = (arguments(value) if column == "args" else value) if value else None
    return found
