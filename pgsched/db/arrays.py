"""The rule: what a set-based statement takes is written as array literals, because dumping lists value by value costs
more than the statement itself.

The server parses them by the types that the statement names, so a value that is none of its type is refused there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime


def plain(values: Iterable[object]) -> str:
    """The array literal of values whose text needs no quotes: whole numbers, uuids, hexadecimal digits."""
    return "{" + ",".join(map(str, values)) + "}"


def literal(values: Iterable[object]) -> str:
    """The array literal of texts, whole numbers, instants and None; a column of nothing but None is an empty one."""
    given = list(values)
    kinds = set(map(type, given))
    if kinds <= {type(None)}:
        return "{}"
    if kinds == {datetime}:  # most columns are long, and of one kind
        return "{" + ",".join(map(datetime.isoformat, given)) + "}"  # type: ignore[arg-type]
    item = {text: _item(text) for text in set(given)}.__getitem__ if kinds == {str} else _item
    return "{" + ",".join(map(item, given)) + "}"


def literals(rows: Iterable[Sequence[int]]) -> str:
    """An array of texts that are array literals of whole numbers each."""
    return "{" + ",".join([f'"{plain(row)}"' for row in rows]) + "}"


def _item(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
