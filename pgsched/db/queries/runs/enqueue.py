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

from pgsched import config
from pgsched.core.model import FirstResult, RunId
from pgsched.db import fleets
from pgsched.db.callers.foreign import ForeignConnection
from pgsched.db.connection.json_values import program_value
from pgsched.db.connection.transaction_pooling import cursor_on, cursor_on_async
from pgsched.db.statements import sql
from pgsched.errors import AlreadyEnqueued, InputError

LINES = 500  # sent at a time
WORTH_CHECKING = 100  # fewer runs are checked by the trigger sooner than `enqueue_plain` answers
# A plain INSERT does not take these: with one of them, the database makes the run by a function.
FULL = (
    "unique_key", "unique_template", "unique_by", "idempotency_key", "after", "after_any", "kill_after", "backoff",
    "backoff_base", "backoff_max", "backoff_jitter", "expires", "expires_at", "keep",
)  # fmt: skip
RARE: dict[str, Any] = dict.fromkeys(("trace", "unique_template", "defaults", "expires_at", "idempotency_keys"))
MORE = (
    "kill_after", "backoff", "backoff_base", "backoff_max", "backoff_jitter", "expires_at", "keep",
)  # columns of a COPY that few have: `enqueue_at_more` in sql/enqueue.sql  # fmt: skip
BACKSLASH, DOUBLED = "\\", "\\\\"
CHECKED = {"checked": "true"}
DECIDED = dict.fromkeys(("queue", "priority", "max_attempts", "timeout"))


class Texts(Protocol):
    """A sized iterable of JSON texts."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...


def enqueue(conn: Connection[Any] | ForeignConnection, **values: Any) -> RunId:
    """Make a run; return its id, or that of the run with the same key. Raises AlreadyEnqueued, InputError.

    `values`: the parameters of the statement `enqueue` or `enqueue_full`.
    """
    if isinstance(conn, ForeignConnection):
        fleet = config.fleet()
        rows = conn.fetch(*statement(values, fleet)) or conn.fetch(*named_statement(values, fleet))
        return run_id(None, rows[0], values)
    if not isinstance(conn, Connection):
        raise wrong_connection(conn, "psycopg.Connection")
    fleet = fleets.expected_fleet(conn)
    with cursor_on(conn, dict_row) as cursor:
        row = cursor.execute(*statement(values, fleet)).fetchone()
        return run_id(conn, row or cursor.execute(*named_statement(values, fleet)).fetchone(), values)


async def enqueue_async(conn: AsyncConnection[Any], **values: Any) -> RunId:
    """Do what `enqueue` does, for asyncio."""
    if not isinstance(conn, AsyncConnection):
        raise wrong_connection(conn, "psycopg.AsyncConnection")
    fleet = fleets.expected_fleet(conn)
    async with cursor_on_async(conn, dict_row) as cursor:
        row = await (await cursor.execute(*statement(values, fleet))).fetchone()
        if row is None:
            row = await (await cursor.execute(*named_statement(values, fleet))).fetchone()
        return run_id(conn, row, values)


def statement(values: Mapping[str, Any], fleet: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the statement for one run, and its parameters.

    Without a key it looks for no other run, which saves the server a fifth. `by_name` among the values: the task's code
    is not here. Where the statement then returns no row, the task declares keys or a delay: send `named_statement`.
    """
    if not is_full(values):
        return sql("enqueue_undeclared" if values.get("by_name") else "enqueue"), {"trace": None, **values}
    if values.get("by_name"):
        return named_statement(values, fleet)
    return sql("enqueue_full"), {**RARE, "fleet": fleet, **values, "args": [values["args"]]}


def named_statement(values: Mapping[str, Any], fleet: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the statement for one run of a task whose code is not here, with the keys and the delay it declares."""
    return sql("enqueue_named"), {**RARE, "fleet": fleet, **values, "args": [values["args"]]}


def is_full(values: Mapping[str, Any]) -> bool:
    """Check whether an option is given that a plain INSERT does not take."""
    return any(values.get(name) is not None for name in FULL)


def run_id(conn: fleets.Either | None, row: Any, values: Mapping[str, Any]) -> RunId:
    """Return the run's id from the row of a statement that enqueues. Raises AlreadyEnqueued."""
    found, how = row["id"], as_text(row.get("how", "created"))
    if conn is not None and "fleet" in row:
        fleets.remember_fleet(conn, row["fleet"])
    if how == "created":
        return RunId(found)
    if how == "rejected":
        key = "this key" if values["unique_key"] is None else repr(values["unique_key"])
        raise AlreadyEnqueued(f"unique_key: run {found} has {key} already", int(found))
    return RunId(found, how)


def as_text(value: Any) -> Any:
    """Return the value; as text where psycopg gives bytes, because the connection names no encoding."""
    return value.decode() if isinstance(value, bytes) else value


def enqueue_many(conn: Connection[Any] | ForeignConnection, args: Texts, values: Mapping[str, Any]) -> int:
    """Make a run for each JSON text of `args`, by one COPY; return how many. All or none.

    The runs have the same `values`. Each text is of an object, and not too large (`core/payload.py`). Where row
    security forbids COPY, and with a driver other than psycopg, the rows are inserted.
    """
    if isinstance(conn, ForeignConnection):
        return len(enqueue_many_ids(conn, args, values))
    if not isinstance(conn, Connection):
        raise wrong_connection(conn, "psycopg.Connection")
    with cursor_on(conn, dict_row) as cursor:
        # Without autocommit this begins the caller's transaction. Else `transaction` would begin one and commit it.
        row = cursor.execute(sql("enqueue_at"), values).fetchone()
        if row is not None and row["by_rows"]:
            with conn.transaction():
                return sum(cursor.execute(sql("enqueue_rows"), page).rowcount for page in pages(args, values))
        columns = constants(row, values)
        if is_full(values):
            columns |= given_columns(cursor.execute(sql("enqueue_at_more"), {**RARE, **values}).fetchone())
        decided = {**DECIDED, **columns}
        with conn.transaction():
            if plain := worth_asking(row, args, values) and is_plain(
                cursor.execute(sql("enqueue_plain"), decided).fetchone()
            ):
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
        if is_full(values):
            columns |= given_columns(
                await (await cursor.execute(sql("enqueue_at_more"), {**RARE, **values})).fetchone()
            )
        decided = {**DECIDED, **columns}
        async with conn.transaction():
            if plain := worth_asking(row, args, values) and is_plain(
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


def enqueue_many_ids(conn: Connection[Any] | ForeignConnection, args: Texts, values: Mapping[str, Any]) -> list[RunId]:
    """Make a run for each JSON text of `args`, or find the one that has its key; return their ids in that order.

    All or none. Raises AlreadyEnqueued, InputError.
    """
    if isinstance(conn, ForeignConnection):
        text, values = statement_of_many(values, config.fleet())
        with conn.transaction():
            if keys := keys_to_take(values):
                conn.fetch(sql("enqueue_take_keys"), {**values, "keys": keys})
            return [run_id(None, row, values) for page in pages(args, values) for row in conn.fetch(text, page)]
    if not isinstance(conn, Connection):
        raise wrong_connection(conn, "psycopg.Connection")
    text, values = statement_of_many(values, fleets.expected_fleet(conn))
    with cursor_on(conn, dict_row) as cursor:
        cursor.execute("SELECT")  # without autocommit this begins the caller's transaction, as in `enqueue_many`
        with conn.transaction():
            if keys := keys_to_take(values):
                cursor.execute(sql("enqueue_take_keys"), {**values, "keys": keys})
            return [
                run_id(conn, row, values)
                for page in pages(args, values)
                for row in cursor.execute(text, page).fetchall()
            ]


async def enqueue_many_ids_async(conn: AsyncConnection[Any], args: Texts, values: Mapping[str, Any]) -> list[RunId]:
    """Do what `enqueue_many_ids` does, for asyncio."""
    if not isinstance(conn, AsyncConnection):
        raise wrong_connection(conn, "psycopg.AsyncConnection")
    text, values = statement_of_many(values, fleets.expected_fleet(conn))
    async with cursor_on_async(conn, dict_row) as cursor:
        await cursor.execute("SELECT")
        async with conn.transaction():
            if keys := keys_to_take(values):
                await cursor.execute(sql("enqueue_take_keys"), {**values, "keys": keys})
            return [
                run_id(conn, row, values)
                for page in pages(args, values)
                for row in await (await cursor.execute(text, page)).fetchall()
            ]


def statement_of_many(values: Mapping[str, Any], fleet: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the statement for a page of runs whose ids are wanted, and its parameters without their arguments."""
    keyed = any(values.get(name) is not None for name in ("unique_template", "unique_by", "idempotency_keys"))
    return sql("enqueue_full" if keyed else "enqueue_rows"), {**RARE, **values, "fleet": fleet}


def keys_to_take(values: Mapping[str, Any]) -> list[str]:
    """Return the idempotency keys of the calls, sorted; nothing if the calls have that order already.

    All callers take keys in this order, so that they wait for each other without a deadlock. The runs keep the order of
    their calls.
    """
    keys = list(dict.fromkeys(values.get("idempotency_keys") or ()))
    ordered = sorted(keys)
    return [] if keys == ordered else ordered


def given_columns(row: Any) -> dict[str, str]:
    """Return the columns that `enqueue_at_more` has decided, as text, without those that are not given."""
    return {name: str(as_text(row[name])) for name in MORE if row[name] is not None}


def worth_asking(row: Any, args: Texts, values: Mapping[str, Any]) -> bool:
    """Check whether it is worth asking `enqueue_plain`. `row`: the answer of `enqueue_at`."""
    return bool(row["may_check"]) and not is_full(values) and len(args) >= WORTH_CHECKING


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
    """Yield the parameters of `enqueue_rows` or `enqueue_full`, LINES rows at a time."""
    texts, keys = iter(args), values.get("idempotency_keys")
    first = 0
    while page := list(islice(texts, LINES)):
        own = None if keys is None else keys[first : first + LINES]
        yield {**RARE, **values, "args": page, "idempotency_keys": own}
        first += LINES


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
