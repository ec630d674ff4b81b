"""Statements by libpq's own calls, for those that a run waits for.

The rule: the same rows as from a cursor, for a third of the time: what a cursor does for each statement (look its plan
up, adapt values, describe columns) takes 0.1 ms of this process, and three times that after a pause.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, generators
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.string import TextLoader

from pgsched.db.connection.bounded import AsyncPatientConnection, PatientConnection
from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.connection.transaction_pooling import is_shared

# no plan's name twice: not where preparing one was cut short, nor on a session that a pooler lends to one after another
PROCESS, NUMBERS = secrets.token_hex(4), count()
Row = tuple[Any, ...]
Patient = PatientConnection | AsyncPatientConnection
SENT = (str, int, type(None))
NO_SUCH_PLAN = b"26000"
FEW = 100
PLACEHOLDER = re.compile(rb"%(?:\((\w+)\)s|%)")


class Answer(NamedTuple):
    """The names of a result's columns, and its rows, a few at a time."""

    columns: tuple[str, ...]
    parts: Iterable[list[Row]]

    @classmethod
    def of(cls, cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any], rows: list[Row]) -> Answer:
        """Of all rows of a cursor."""
        return cls(tuple(column.name for column in cursor.description or ()), [rows])


def json_as_text(context: AdaptContext) -> None:
    """Let JSON come as text, over this connection or cursor: to read it costs more than all the rest of a row."""
    context.adapters.register_loader("jsonb", TextLoader)


class Context:
    """What rows of this connection are read with."""

    adapters = AdaptersMap(psycopg.adapters)

    def __init__(self, connection: PatientConnection | AsyncConnection[Any]) -> None:
        self.connection = connection


Context.adapters.register_loader("jsonb", TextLoader)


async def rows(conn: AsyncConnection[Any], text: bytes, values: Mapping[str, object]) -> list[Row]:
    """The rows, with JSON as text, of a statement of `sql/` on an autocommit connection, where it stays prepared.

    `values`: texts, numbers, UUIDs and None, which the server reads as what the statement says they are. Raises as
    a cursor does, but that nothing keeps two tasks from using the connection at once.
    """
    return [row for few in (await parts(conn, text, values)).parts for row in few]


async def changed(conn: AsyncConnection[Any], text: bytes, values: Mapping[str, object]) -> int:
    """How many rows a statement wrote that returns none; otherwise as `rows`."""
    if is_shared(conn) or not isinstance(conn, AsyncPatientConnection):
        return (await conn.execute(text, values)).rowcount
    return (await answer(conn, text, values)).command_tuples or 0


async def parts(conn: AsyncConnection[Any], text: bytes, values: Mapping[str, object]) -> Answer:
    """As `rows`, with the columns' names, and a few rows at a time, each read when it is asked for: what is made of
    them while the processor's cache has them, and their memory taken for the next, costs two thirds."""
    if is_shared(conn) or not isinstance(conn, AsyncPatientConnection):
        json_as_text(cursor := conn.cursor())
        return Answer.of(cursor, await (await cursor.execute(text, values)).fetchall())
    result = await answer(conn, text, values)
    reader = Transformer(Context(conn))
    reader.set_pgresult(result)
    end, names = result.ntuples, [result.fname(n) or b"" for n in range(result.nfields)]
    few = (reader.load_rows(begin, min(begin + FEW, end), tuple) for begin in range(0, end, FEW))
    return Answer(tuple(map(bytes.decode, names)), few)


async def answer(conn: AsyncPatientConnection, text: bytes, values: Mapping[str, object]) -> PGresult:
    """The asyncio form of `asked`."""
    if text not in conn.plans:
        await conn.wait(prepared(conn, text))
    return await conn.wait(executed(conn, text, values))


def first(conn: PatientConnection, text: bytes, values: Mapping[str, object]) -> Row | None:
    """The first row, as `rows` gives it, over a blocking connection: one that nobody else uses in any way."""
    with conn.lock:
        try:
            result = asked(conn, text, values)
        except errors.InvalidSqlStatementName:
            if not is_idle(conn):
                raise
            result = asked(conn, text, values)
    reader = Transformer(Context(conn))
    reader.set_pgresult(result)
    return reader.load_row(0, tuple) if result.ntuples else None


async def first_async(conn: AsyncPatientConnection, text: bytes, values: Mapping[str, object]) -> Row | None:
    """The asyncio form of `first`."""
    async with conn.lock:
        try:
            found = await rows(conn, text, values)
        except errors.InvalidSqlStatementName:
            if not is_idle(conn):
                raise
            found = await rows(conn, text, values)
    return next(iter(found), None)


def asked(conn: PatientConnection, text: bytes, values: Mapping[str, object]) -> PGresult:
    """What the server says to a statement."""
    if text not in conn.plans:
        conn.wait(prepared(conn, text))
    return conn.wait(executed(conn, text, values))


# Each is one round trip and no more: psycopg goes on with one that is cut short until the server has answered, and what
# came after that would be executed although nobody wants it any more. What is sent is sent by them, not before them,
# so that nothing is under way whose answer is not waited for.


def prepared(conn: Patient, text: bytes) -> Generator[Any, Any, None]:
    """Let the server prepare a statement."""
    plan = new_plan()
    conn.pgconn.send_prepare(plan, numbering(text)[0])
    checked(conn, (yield from generators.execute(conn.pgconn)))
    conn.plans[text] = plan


def executed(conn: Patient, text: bytes, values: Mapping[str, object]) -> Generator[Any, Any, PGresult]:
    """What the server says to a statement that it has prepared."""
    conn.pgconn.send_query_prepared(conn.plans[text], [sent(values[name]) for name in numbering(text)[1]])
    return checked(conn, (yield from generators.execute(conn.pgconn)))


def is_idle(conn: Patient) -> bool:
    """Is there no transaction? Then what could not be executed can be sent again. (Among those who drop a plan is
    psycopg: after a rollback, if it has prepared a statement itself, it drops all that the session has.)"""
    return conn.pgconn.transaction_status == TransactionStatus.IDLE


def can_be_sent(text: bytes, values: Mapping[str, object]) -> bool:
    """Are the statement's values ones that `rows` and `first` take? An enum that is a text too is not."""
    return all(type(values[name]) in SENT for name in numbering(text)[1])


def new_plan() -> bytes:
    """A name for what is to be prepared."""
    return f"pgsched_{PROCESS}_{os.getpid()}_{next(NUMBERS)}".encode()  # a fork has the same numbers


def checked(conn: Patient, results: Sequence[PGresult]) -> PGresult:
    """The last of these. Raises what the server complains of."""
    result = results[-1]
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        if result.error_field(DiagnosticField.SQLSTATE) == NO_SUCH_PLAN:
            conn.plans.clear()  # somebody has dropped them
        raise errors.error_from_result(result, conn.info.encoding)
    return result


def sent(value: object) -> bytes | None:
    """A value in PostgreSQL's text format. Raises DataError or UnicodeEncodeError for what no text can be."""
    if value is None:
        return None
    text = str(value).encode()
    if b"\0" in text:  # libpq would take it for the end
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text


@cache
def numbering(text: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A statement with the placeholders `$1`, `$2` for `%(name)s`, and the names in that order."""
    names: dict[str, int] = {}

    def number(found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            return b"%"
        return b"$%d" % names.setdefault(found[1].decode(), len(names) + 1)

    return PLACEHOLDER.sub(number, text), tuple(names)
