"""Enqueueing: make one run or many, each in sync and asyncio form; and look up the result of an idempotency key.

Invariant: runs are made on the caller's connection and in the caller's transaction, one run by one statement. Both
forms share the statement and differ only in the line that sends it.

A trigger checks each row and notifies sleeping workers. Rows of a COPY can be checked together instead: a role that may
write the column `checked` sets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from psycopg import AsyncConnection, Connection
from psycopg import sql as composing
from psycopg.rows import class_row, dict_row

from pgsched.core.model import FirstResult, RunId
from pgsched.db import fleets
from pgsched.db.connection.json_values import program_value
from pgsched.db.connection.transaction_pooling import cursor_on, cursor_on_async
from pgsched.db.statements import sql
from pgsched.errors import AlreadyEnqueued, InputError

LINES = 500  # sent at a time
WORTH_CHECKING = 100  # fewer runs are checked by the trigger sooner than `enqueue_plain` answers
KEYED = ("unique_key", "idempotency_key", "after", "after_any")
BACKSLASH, DOUBLED = "\\", "\\\\"
CHECKED = {"checked": "true"}
DECIDED = dict.fromkeys(("queue", "priority", "max_attempts", "timeout"))


class Texts(Protocol):
    """A sized iterable of JSON texts."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...


def enqueue(conn: Connection[Any], **values: Any) -> RunId:
    """Make a run; return its id, or that of the run with the same key. Raises AlreadyEnqueued, InputError.

    `values`: the parameters of the statement `enqueue` or `enqueue_keyed`.
    """
    if not isinstance(conn, Connection):
        raise wrong_connection(conn, "psycopg.Connection")
    text, values = statement(values), {"trace": None, "fleet": fleets.expected_fleet(conn), **values}
    with cursor_on(conn, dict_row) as cursor:
        return run_id(conn, cursor.execute(text, values).fetchone(), values)


async def enqueue_async(conn: AsyncConnection[Any], **values: Any) -> RunId:
    """Do what `enqueue` does, for asyncio."""
    if not isinstance(conn, AsyncConnection):
        raise wrong_connection(conn, "psycopg.AsyncConnection")
    text, values = statement(values), {"trace": None, "fleet": fleets.expected_fleet(conn), **values}
    async with cursor_on_async(conn, dict_row) as cursor:
        return run_id(conn, await (await cursor.execute(text, values)).fetchone(), values)


def statement(values: Mapping[str, Any]) -> bytes:
    """Return the statement for one run. Without a key it looks for no other run, which saves the server a fifth."""
    return sql("enqueue" if all(values[name] is None for name in KEYED) else "enqueue_keyed")


def run_id(conn: fleets.Either, row: Any, values: Mapping[str, Any]) -> RunId:
    """Return the run's id from the row of a statement that enqueues. Raises AlreadyEnqueued."""
    found, how = row["id"], as_text(row["how"])
    if "fleet" in row:
        fleets.remember_fleet(conn, row["fleet"])
    if how == "created":
        return RunId(found)
    if how == "rejected":
        raise AlreadyEnqueued(f"unique_key: run {found} has {values['unique_key']!r} already", int(found))
    return RunId(found, how)


def as_text(value: Any) -> Any:
    """Return the value; as text where psycopg gives bytes, because the connection names no encoding."""
    return value.decode() if isinstance(value, bytes) else value


def enqueue_many(conn: Connection[Any], args: Texts, values: Mapping[str, Any]) -> int:
    """Make a run for each JSON text of `args`, by one COPY; return how many. All or none.

    The runs have the same `values`. Each text is of an object, and not too large (`core/payload.py`). Where row
    security forbids COPY, the rows are inserted.
    """
    if not isinstance(conn, Connection):
        raise wrong_connection(conn, "psycopg.Connection")
    with cursor_on(conn, dict_row) as cursor:
        # Without autocommit this begins the caller's transaction. Else `transaction` would begin one and commit it.
        row = cursor.execute(sql("enqueue_at"), values).fetchone()
        if row is not None and row["by_rows"]:
            with conn.transaction():
                return sum(cursor.execute(sql("enqueue_rows"), page).rowcount for page in pages(args, values))
        columns = constants(row, values)
        decided = {**DECIDED, **columns}
        with conn.transaction():
            if plain := worth_asking(row, args) and is_plain(cursor.execute(sql("enqueue_plain"), decided).fetchone()):
                columns |= CHECKED
            with cursor.copy(copy_statement(columns)) as copy:
                for chunk in chunks(args, columns):
                    copy.write(chunk)
            count = cursor.rowcount
            if plain:
                cursor.execute(sql("enqueue_told"), decided)
        return count


async def enqueue_many_async(conn: AsyncConnection[Any], args: Texts, values: Mapping[str, Any]) -> int:
    """Do what `enqueue_many` does, for asyncio."""
    if not isinstance(conn, AsyncConnection):
        raise wrong_connection(conn, "psycopg.AsyncConnection")
    async with cursor_on_async(conn, dict_row) as cursor:
        row = await (await cursor.execute(sql("enqueue_at"), values)).fetchone()
        if row is not None and row["by_rows"]:
            async with conn.transaction():
                return sum([(await cursor.execute(sql("enqueue_rows"), page)).rowcount for page in pages(args, values)])
        columns = constants(row, values)
        decided = {**DECIDED, **columns}
        async with conn.transaction():
            if plain := worth_asking(row, args) and is_plain(
                await (await cursor.execute(sql("enqueue_plain"), decided)).fetchone()
            ):
                columns |= CHECKED
            async with cursor.copy(copy_statement(columns)) as copy:
                for chunk in chunks(args, columns):
                    await copy.write(chunk)
            count = cursor.rowcount
            if plain:
                await cursor.execute(sql("enqueue_told"), decided)
        return count


def worth_asking(row: Any, args: Texts) -> bool:
    """Check whether it is worth asking `enqueue_plain`. `row`: the answer of `enqueue_at`."""
    return bool(row["may_check"]) and len(args) >= WORTH_CHECKING


def is_plain(row: Any) -> bool:
    """Return the answer of `enqueue_plain`: whether the runs need no check by the trigger."""
    return bool(row["plain"])


def constants(row: Any, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that all runs of a COPY share, as text, without those that take their default."""
    shared = {
        "task": values["task"],
        **{name: row[name] for name in ("available_at", "tags", "concurrency_key", *DECIDED)},
    }
    if "trace" in values:
        shared["options"] = f'{{"trace": {values["trace"]}}}'
    return {name: str(as_text(value)) for name, value in shared.items() if value is not None}


def copy_statement(columns: Mapping[str, str]) -> composing.Composed:
    """Return the COPY into these columns and `args`."""
    names = composing.SQL(", ").join(map(composing.Identifier, [*columns, "args"]))
    return composing.SQL("COPY pgsched.runs ({}) FROM STDIN").format(names)


def chunks(args: Iterable[str], columns: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a COPY, LINES at a time. JSON text has no tab and no newline in it.

    Text and not bytes: psycopg writes it in the encoding of the caller's connection.
    """
    before = "".join(copy_text(value) + "\t" for value in columns.values())
    lines = (f"{before}{text.replace(BACKSLASH, DOUBLED)}\n" for text in args)
    while chunk := "".join(islice(lines, LINES)):
        yield chunk


def pages(args: Iterable[str], values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parameters of `enqueue_rows`, LINES rows at a time."""
    texts = iter(args)
    while page := list(islice(texts, LINES)):
        yield {"trace": None, **values, "args": page}


def copy_text(text: str) -> str:
    """Return a value as the text format of COPY has it."""
    return text.replace(BACKSLASH, DOUBLED).replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def wrong_connection(conn: object, expected: str) -> InputError:
    """Make the error for a connection of another library, or of the other form (sync or asyncio)."""
    kind = f"{type(conn).__module__.partition('.')[0]}.{type(conn).__name__}"
    hint = "; enqueue() takes a Connection, enqueue_async() an AsyncConnection"
    return InputError(f"connection: expected a {expected}, got a {kind}{hint}", "connection")


def first_result(conn: Connection[Any], key: str) -> FirstResult | None:
    """Return what became of the run that an idempotency key stands for; None: the key is unknown or has expired."""
    with cursor_on(conn, class_row(FirstResult)) as cursor:
        return readable(cursor.execute(sql("first_result"), {"key": key}).fetchone())


async def first_result_async(conn: AsyncConnection[Any], key: str) -> FirstResult | None:
    """Do what `first_result` does, for asyncio."""
    async with cursor_on_async(conn, class_row(FirstResult)) as cursor:
        return readable(await (await cursor.execute(sql("first_result"), {"key": key})).fetchone())


def readable(found: FirstResult | None) -> FirstResult | None:
    """Return the row with a result that Python can work with. Raises InputError."""
    return None if found is None else replace(found, result=program_value(found.result))
