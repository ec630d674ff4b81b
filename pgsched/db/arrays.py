"""Write PostgreSQL array literals for statements that take whole columns of values.

psycopg adapts lists value by value, which costs more than the statement itself. The server parses the literals by the
types that the statement names, and refuses a value of another type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime


def plain(values: Iterable[object]) -> str:
    """Return the array literal of values whose text needs no quotes: whole numbers, uuids, hexadecimal digits."""
    return "{" + ",".join(map(str, values)) + "}"


def literal(values: Iterable[object]) -> str:
    """Return the array literal of texts, whole numbers, instants and None.

    A column that holds only None becomes an empty array.
    """
    given = list(values)
    kinds = set(map(type, given))
    if kinds <= {type(None)}:
        return "{}"
    if kinds == {datetime}:  # fast path, because most columns are long and hold one type
        return "{" + ",".join(map(datetime.isoformat, given)) + "}"  # type: ignore[arg-type]
    item = {text: _item(text) for text in set(given)}.__getitem__ if kinds == {str} else _item
    return "{" + ",".join(map(item, given)) + "}"


def literals(rows: Iterable[Sequence[int]]) -> str:
    """Return the literal of a text array; each text is itself the literal of an array of whole numbers."""
    return "{" + ",".join([f'"{plain(row)}"' for row in rows]) + "}"


def _item(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
