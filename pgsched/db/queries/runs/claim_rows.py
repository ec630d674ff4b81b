"""The rows of statements that claim, turned into claims.

Invariant: a value is found by the name of its column, and reading its JSON raises nothing. One row that Python cannot
read must not stop the worker that claims it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import itemgetter
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncCursor
from psycopg.abc import AdaptContext
from psycopg.types.string import TextLoader

from pgsched.core.model import Claim, Claims, Kind, Unreadable
from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.connection.json_values import UnreadableJson, parse_json
from pgsched.db.connection.transaction_pooling import is_shared

Row = tuple[Any, ...]
TASK = Kind.TASK.value
ORDER = itemgetter(*map(Claim._fields.index, ("priority", "available_at", "id")))
COLUMNS = tuple(name for name in Claim._fields if name != "token")  # of a row, in the order that `claims_of` needs
ARGS, OPTIONS = COLUMNS.index("args"), COLUMNS.index("options")
FEW = 100  # rows whose JSON is decoded by one call
MOST_AT_ONCE = 1_000_000  # characters of JSON that are decoded by one call
MOST_KEPT = 100_000  # characters of arguments that a cursor may keep until the next claim
# Not a WeakKeyDictionary: each cursor refers to its connection, so no entry would ever be removed.
CURSORS: dict[AsyncConnection[Any], dict[bytes, AsyncCursor[Row]]] = {}


def json_as_text(context: AdaptContext) -> None:
    """Load JSON as text over this connection or cursor: psycopg's loader costs more than all the rest of a row."""
    context.adapters.register_loader("jsonb", TextLoader)


def prepare(conn: AsyncConnection[Any]) -> bool | None:
    """Return psycopg's `prepare` for a statement that is sent all the time: True, or None where sessions are shared."""
    return None if is_shared(conn) else True


async def send_claim(
    conn: AsyncConnection[Any], text: bytes, values: Mapping[str, object], token: UUID, asked: str
) -> Claims:
    """Send a statement that claims; return its rows as claims.

    `text`, `values`: the statement and its parameters; `asked`: as in `claims_of`.
    """
    cursor = kept_cursor(conn, text)
    await cursor.execute(text, values, prepare=prepare(conn))
    found = claims_of(token, columns_of(cursor), await cursor.fetchall(), asked)
    if len(found) > FEW or found.size > MOST_KEPT:  # the cursor would keep the rows until the next claim
        CURSORS[conn].pop(text, None)
    return found


def kept_cursor(conn: AsyncConnection[Any], text: bytes) -> AsyncCursor[Row]:
    """Return the cursor that is kept for this statement on this connection.

    psycopg remembers in a cursor how to adapt the parameters and how to read the columns; to find that out takes 15 us.
    Only one asyncio task may use the connection.
    """
    if (cursors := CURSORS.get(conn)) is None:
        for gone in [other for other in list(CURSORS) if other.closed]:
            del CURSORS[gone]
        cursors = CURSORS[conn] = {}
    if (cursor := cursors.get(text)) is None:
        json_as_text(cursor := conn.cursor())
        cursors[text] = cursor
    return cursor


def columns_of(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> tuple[str, ...]:
    """Return the names of a result's columns."""
    if (result := cursor.pgresult) is None:
        return ()
    return tuple((result.fname(n) or b"").decode() for n in range(result.nfields))


@cache
def column_reorderer(columns: tuple[str, ...]) -> Callable[[Row], Row] | None:
    """Return a function that puts a row with these columns into the order of COLUMNS; None: it has that order."""
    return None if columns == COLUMNS else itemgetter(*map(columns.index, COLUMNS))


def claims_of(token: UUID, columns: tuple[str, ...], rows: Sequence[Row], asked: str = "") -> Claims:
    """Turn rows of a statement that claims, with JSON as text, into claims by (priority, available_at, id).

    `asked`: the queue that was asked for; rows of this queue have null as their queue.
    """
    if (ordered := column_reorderer(columns)) is not None:
        rows = list(map(ordered, rows))
    claims = Claims()
    make = tuple.__new__  # with every value given by name: half the time of the class's constructor
    texts: dict[str, str] = {}
    one_of = texts.setdefault  # one object for equal texts: fewer to keep, and fewer to free, out of the CPU's cache
    for part in (rows[begin : begin + FEW] for begin in range(0, len(rows), FEW)):
        (every_args, size), (every_options, _) = (
            decode_column([row[ARGS] for row in part]),
            decode_column([row[OPTIONS] for row in part]),
        )
        claims.size += size
        claims += [
            make(Claim, (run, token, attempt, most, queue or asked, priority, kind or TASK, one_of(task, task), args,
                         job, slot, at, owner, timeout, kill_after, backoff, base, longest, jitter, options, bad, name,
                         begin, zone, job_name))
            for (run, attempt, most, queue, priority, kind, task, _, job, slot, at, owner, timeout, kill_after, backoff,
                 base, longest, jitter, _, bad, name, begin, zone, job_name), args, options
            in zip(part, every_args, every_options, strict=True)
        ]  # fmt: skip
    claims.sort(key=ORDER)  # RETURNING has no order, but the rows nearly always come in this one
    return claims


def decode_column(column: Sequence[str | None]) -> tuple[list[Any], int]:
    """Decode a column of JSON texts; return the values, and the length of the texts in characters.

    Raises nothing: an error over one row would stop the worker that claims it.
    """
    if len(column) == 1:  # the usual case where a caller waits for the run
        (text,) = column
        return ([None], 0) if text is None else ([read_one(text)], len(text))
    if not any(column):
        return list(column), 0
    texts = ["null" if text is None else text for text in column]
    size = sum(map(len, texts))
    # one call for all takes a tenth of the time of one call for each
    if size <= MOST_AT_ONCE:
        with suppress(ValueError, RecursionError):
            return list(json.loads(f"[{','.join(texts)}]")), size
    return [read_one(text) for text in texts], size


def read_one(text: str) -> Any:
    """Decode one JSON text; return `Unreadable` where Python has no value for it."""
    found = parse_json(text)
    return Unreadable(f"Python cannot read this JSON: {found.why}") if isinstance(found, UnreadableJson) else found
