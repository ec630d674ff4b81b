"""How keys of the store and their values are printed.

Invariant: a value is printed with all its digits, as the database has it, and is the same JSON in each format. Control
characters in it are printed as JSON escapes them.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from pgsched.control_characters import escape_controls, json_escape
from pgsched.core.payload import json_value

BEYOND_ASCII = re.compile("[^\x00-\x7e]")


def format_value(text: str) -> str:
    """Return the JSON text of a value as one line that is safe to show."""
    return escape_controls(text, in_json=True)


def format_record(record: Mapping[str, Any], *, indent: bool = False) -> str:
    """Return a record as JSON in ASCII. Its `value` is JSON text already, or None. `indent`: a line for each field."""
    fields = [f"{json.dumps(name)}: {field_text(name, value)}" for name, value in record.items()]
    return "{\n  " + ",\n  ".join(fields) + "\n}" if indent else "{" + ", ".join(fields) + "}"


def field_text(name: str, value: Any) -> str:
    """Return the JSON text of a field of a record."""
    if name == "value" and value is not None:
        return BEYOND_ASCII.sub(json_escape, value)
    return json.dumps(value, default=json_value)


def print_record(record: Mapping[str, Any]) -> None:
    """Print a record as JSON, indented on a terminal."""
    print(format_record(record, indent=sys.stdout.isatty()))


def print_records(records: Iterable[Mapping[str, Any]]) -> None:
    """Print records as a JSON array, one on each line of a terminal."""
    lines = list(map(format_record, records))
    print("[\n  " + ",\n  ".join(lines) + "\n]" if lines and sys.stdout.isatty() else f"[{', '.join(lines)}]")


def print_raw(text: str) -> None:
    """Print a value that is a string as plain text, and any other as JSON. Control characters go into a pipe only."""
    if not text.startswith('"'):
        return print(format_value(text))
    value = json.loads(text)
    return print(escape_controls(value, "\n\t") if sys.stdout.isatty() else value)


def print_fitting(line: str) -> None:
    """Print a line at once, cut at the width of a terminal."""
    if sys.stdout.isatty():
        from rich.text import Text

        fitting = Text(line)
        fitting.truncate(shutil.get_terminal_size().columns, overflow="ellipsis")
        line = fitting.plain
    print(line, flush=True)
