"""Rows of the statements that claim, as claims.

Invariant: a value is found by the name of its column, and its JSON read without raising anything: one row that Python
cannot read must not end whatever claims it.
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
from pgsched.db.connection.json_values import UnreadableJson, parsed
from pgsched.db.connection.transaction_pooling import is_shared

Row = tuple[Any, ...]
TASK = Kind.TASK.value
ORDER = itemgetter(*map(Claim._fields.index, ("priority", "available_at", "id")))
COLUMNS = tuple(name for name in Claim._fields if name != "token")  # a row's, in the order that `claims_of` takes
ARGS, OPTIONS = COLUMNS.index("args"), COLUMNS.index("options")
FEW = 100  # rows whose JSON is decoded by one call
MOST_AT_ONCE = 1_000_000  # characters of JSON
MOST_KEPT = 100_000  # characters of arguments that a cursor may go on holding
# Not a WeakKeyDictionary: each cursor refers to its connection, so that no entry would ever go.
CURSORS: dict[AsyncConnection[Any], dict[bytes, AsyncCursor[Row]]] = {}


def json_as_text(context: AdaptContext) -> None:
    """Let JSON come as text, over this connection or cursor: to read it costs more than all the rest of a row."""
    context.adapters.register_loader("jsonb", TextLoader)


def prepare(conn: AsyncConnection[Any]) -> bool | None:
    """What psycopg is told of a statement that is sent all the time: prepare it at once, where that session is kept."""
    return None if is_shared(conn) else True


async def claimed(
    conn: AsyncConnection[Any], text: bytes, values: Mapping[str, object], token: UUID, asked: str
) -> Claims:
    """What a statement that claims answers."""
    cursor = kept_cursor(conn, text)
    await cursor.execute(text, values, prepare=prepare(conn))
    found = claims_of(token, columns_of(cursor), await cursor.fetchall(), asked)
    if len(found) > FEW or found.size > MOST_KEPT:  # it would keep them until the next claim
        CURSORS[conn].pop(text, None)
    return found


def kept_cursor(conn: AsyncConnection[Any], text: bytes) -> AsyncCursor[Row]:
    """The cursor for this statement on this connection, which one task uses. psycopg remembers in it how to adapt the
    statement's values and how to read its columns; to find that out takes 15 us."""
    if (cursors := CURSORS.get(conn)) is None:
        for gone in [other for other in list(CURSORS) if other.closed]:
            del CURSORS[gone]
        cursors = CURSORS[conn] = {}
    if (cursor := cursors.get(text)) is None:
        json_as_text(cursor := conn.cursor())
        cursors[text] = cursor
    return cursor


def columns_of(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> tuple[str, ...]:
    """The names of a result's columns."""
    if (result := cursor.pgresult) is None:
        return ()
    return tuple((result.fname(n) or b"").decode() for n in range(result.nfields))


@cache
def in_order(columns: tuple[str, ...]) -> Callable[[Row], Row] | None:
    """What gives a row with these columns in the order of COLUMNS, found by name; None: it is in that order."""
    return None if columns == COLUMNS else itemgetter(*map(columns.index, COLUMNS))


def claims_of(token: UUID, columns: tuple[str, ...], rows: Sequence[Row], asked: str = "") -> Claims:
    """The rows of `claim` and its like, with JSON as text, as claims in (priority, available_at, id) order; `asked` is
    the queue of those that say none."""
    if (ordered := in_order(columns)) is not None:
        rows = list(map(ordered, rows))
    claims = Claims()
    make = tuple.__new__  # by it, and each value by its name: half of what the class's own way takes
    texts: dict[str, str] = {}
    one_of = texts.setdefault  # equal texts are one: fewer to keep, and to free when they are out of the cache
    for part in (rows[begin : begin + FEW] for begin in range(0, len(rows), FEW)):
        (every_args, size), (every_options, _) = read([row[ARGS] for row in part]), read([row[OPTIONS] for row in part])
        claims.size += size
        claims += [
            make(Claim, (run, token, attempt, most, queue or asked, priority, kind or TASK, one_of(task, task), args,
                         job, slot, at, owner, timeout, kill_after, backoff, base, longest, jitter, options, bad, name))
            for (run, attempt, most, queue, priority, kind, task, _, job, slot, at, owner, timeout, kill_after, backoff,
                 base, longest, jitter, _, bad, name), args, options
            in zip(part, every_args, every_options, strict=True)
        ]  # fmt: skip
    claims.sort(key=ORDER)  # RETURNING has no order, though it is nearly always this one
    return claims


def read(column: Sequence[str | None]) -> tuple[list[Any], int]:
    """The values of a column of JSON, and its length. It raises nothing: one row would end whatever claims it."""
    if len(column) == 1:  # nearly always where somebody waits for it
        (text,) = column
        return ([None], 0) if text is None else ([read_one(text)], len(text))
    if not any(column):
        return list(column), 0
    texts = ["null" if text is None else text for text in column]
    size = sum(map(len, texts))
    # all at once takes a tenth of the time that one by one takes
    if size <= MOST_AT_ONCE:
        with suppress(ValueError, RecursionError):
            return list(json.loads(f"[{','.join(texts)}]")), size
    return [read_one(text) for text in texts], size


def read_one(text: str) -> Any:
    """One value; `Unreadable` if Python has none for it."""
    found = parsed(text)
    return Unreadable(f"Python cannot read this JSON: {found.why}") if isinstance(found, UnreadableJson) else found
