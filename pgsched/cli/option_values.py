"""Option texts become values here, or an InputError that names the option."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pgsched.config import MAX_PAYLOAD_BYTES
from pgsched.errors import InputError

AGO = re.compile(r"(\d{1,9})(s|m|h|d|w)")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
# Text of this length can hold a payload that fits, written with much white space; more is not even parsed.
LONGEST = 4 * MAX_PAYLOAD_BYTES


def moment(option: str, text: str | None) -> datetime | timedelta | None:
    """`2h` as a time that long ago; ISO text as an instant (UTC where it names no offset)."""
    if text is None:
        return None
    if found := AGO.fullmatch(text):
        try:
            return timedelta(**{UNITS[found[2]]: int(found[1])})
        except OverflowError:
            raise InputError(f'{option}: "{text}" is too long ago', option) from None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        problem = f'{option}: "{text}" is neither an age (90s, 15m, 2h, 3d, 1w) nor an ISO instant'
        raise InputError(problem, option) from None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def arguments(text: str | None) -> Any:
    """The JSON of --args: itself, `@file`, or `-` for standard input."""
    import json

    if text is None:
        return None
    text = source(text)
    if len(text) > LONGEST:
        raise InputError(f"args: {len(text)} characters; at most {MAX_PAYLOAD_BYTES} bytes of JSON are allowed", "args")
    try:
        value = json.loads(text)
    except RecursionError:
        raise InputError("args: is nested too deeply for JSON", "args") from None
    except ValueError as error:
        raise InputError(f"args: is not JSON: {error}", "args") from None
    if value is None:
        raise InputError("args: must not be null", "args")
    return value


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
