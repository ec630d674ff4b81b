"""Printing of results: tables for terminals and pipes, fields, wrapped text, and JSON.

Invariant: text from the database never reaches a terminal unescaped. Control characters could move the cursor or forge
a line: they are printed as escapes.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

from pgsched.cli.times import SHOWN, to_zone
from pgsched.control_characters import escape_controls
from pgsched.core.payload import json_value
from pgsched.core.wording import format_short_duration

STATES = {
    **dict.fromkeys(("succeeded", "active", "ok", "alive"), "green"),
    **dict.fromkeys(("dead", "missed", "error", "fail", "failed", "crashed", "timed_out"), "red"),
    **dict.fromkeys(("paused", "shadow", "cancelled", "skipped", "warn", "waiting"), "yellow"),
    "running": "cyan",
}
WANTED_LAST, MIN_OTHERS = 20, 13  # wanted by the last column, and left to each other column
LEAST_LAST, LEAST_OTHERS = 12, 11  # needed by the last column, and left to each other column


def format_cell(value: Any) -> str:
    """Format a value on one line, with control characters escaped."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return format_short_duration(value)
    if isinstance(value, datetime):
        return to_zone(value).strftime(SHOWN)
    if isinstance(value, (dict, list)):
        return escape_controls(json.dumps(value, ensure_ascii=False, default=json_value))
    return escape_controls(str(value))


def print_json(value: Any) -> None:
    """Print one JSON document, indented on a terminal.

    All characters beyond ASCII are escaped, so that no document can control a terminal.
    """
    print(json.dumps(value, default=json_value, indent=2 if sys.stdout.isatty() else None))


def print_text(text: str, indent: str = "") -> None:
    """Print text with control characters escaped: wrapped on a terminal, one line in a pipe."""
    text = escape_controls(text)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)
    print(text)


def wrap_for_terminal(text: str, indent: int) -> str:
    """Wrap text for a terminal, with further lines indented by `indent` cells; return it whole for a pipe."""
    if not sys.stdout.isatty():
        return text
    room = max(30, shutil.get_terminal_size().columns - indent)
    return ("\n" + " " * indent).join(textwrap.wrap(text, room, break_on_hyphens=False) or [""])


def print_table(headers: Sequence[str], lines: Sequence[Sequence[Any]], empty: str = "", *, wrap: bool = False,
                whole: Collection[str] = ()) -> None:  # fmt: skip
    """Print a table: coloured and fitted to a terminal; whole, aligned and without colours in a pipe.

    `empty`: the text to print for a table without lines.
    `wrap`: continue the last column below where it does not fit, instead of cutting it.
    `whole`: headers of the columns that never shrink.
    """
    texts = [[format_cell(value) for value in line] for line in lines]
    if not texts:
        print(empty) if empty else None
    elif sys.stdout.isatty():
        print_rich(headers, texts, wrap, whole)
    else:
        widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
        for line in (headers, *texts):
            print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def print_rich(
    headers: Sequence[str], texts: Sequence[Sequence[str]], wrap: bool = False, whole: Collection[str] = ()
) -> None:
    """Print a table on a terminal: the last column gets the remaining room, the others never wrap."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    *others, last = [max(map(cell_len, column)) for column in zip(headers, *texts, strict=True)]
    kept = [header in whole for header in headers]
    others = shrink_widths(others, console.width - min(last, WANTED_LAST), MIN_OTHERS, kept)
    others = shrink_widths(others, console.width - min(last, LEAST_LAST), LEAST_OTHERS, kept)
    for header, width in zip(headers, others, strict=False):
        table.add_column(header, no_wrap=True, overflow="ellipsis", min_width=width, max_width=width)
    table.add_column(headers[-1], no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
    room = max(1, console.width - sum(width + 2 for width in others))
    for line in texts:
        cells = [Text(text, style=STATES.get(text, "")) for text in line]
        if not wrap:
            cells[-1].truncate(room, overflow="ellipsis")
        table.add_row(*cells)
    console.print(table)


def shrink_widths(widths: list[int], room: int, least: int = MIN_OTHERS, kept: Sequence[bool] = ()) -> list[int]:
    """Shrink the widest columns until all fit into `room` cells together; return the new widths.

    No column shrinks below `least` cells, so that ids and states stay whole. Columns with `kept` true keep their
    widths.
    """
    widths = list(widths)
    while sum(width + 2 for width in widths) > room:
        giving = [width for width, whole in zip_longest(widths, kept[: len(widths)]) if not whole and width > least]
        if not giving:
            break
        widths[next(n for n, width in enumerate(widths) if width == max(giving) and not any(kept[n : n + 1]))] -= 1
    return widths


def print_fields(values: Mapping[str, Any]) -> None:
    """Print a `name  value` line per field; text of several lines goes below its name, indented."""
    width = max(map(len, values), default=0)
    for name, value in values.items():
        if isinstance(value, str) and "\n" in value.strip():
            print(f"{name}\n" + "\n".join("    " + escape_controls(line, "\t") for line in value.rstrip().splitlines()))
        else:
            print(f"{name.ljust(width)}  {format_cell(value.strip() if isinstance(value, str) else value)}")
