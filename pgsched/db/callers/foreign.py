"""Send our statements on a connection that is not psycopg's own sync one: of SQLAlchemy with any driver, or of asyncio.

Invariant: the statement is the same text as on our own connections; only its placeholders are written as the library
takes them. Values come back as psycopg returns them.

A statement on an asyncio connection runs on its event loop, while the caller waits in another thread.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import psycopg
from psycopg import sql as composing
from psycopg.rows import tuple_row
from psycopg.types.json import Json, Jsonb

from pgsched.core.model import Row
from pgsched.db.connection.json_values import read_json

PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%|:")
UNDO = "ROLLBACK TO "
SEVERAL = ("SET LOCAL ", UNDO)  # texts that may have several commands
ASYNCPG = "asyncpg"
JSON_TYPES = (114, 3802)  # the types json and jsonb
Statement = bytes | str | composing.Composable


class Fetched(NamedTuple):
    """The result of a statement: the names of its columns, and its rows."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def fetchone(self) -> Sequence[Any] | None:
        """Return the first row, or None."""
        return self.rows[0] if self.rows else None

    def fetchall(self) -> Sequence[Sequence[Any]]:
        """Return all rows."""
        return self.rows


Send = Callable[[str, Mapping[str, Any]], Fetched]


class ForeignError(psycopg.Error):
    """The error of another driver, with what our code reads of an error."""

    def __init__(self, message: str, sqlstate: str | None, details: Any) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self._details = details

    @property
    def diag(self) -> Any:
        """Return the error's fields: those that our code reads."""
        names = ("column_name", "constraint_name", "schema_name", "table_name", "source_file")
        return SimpleNamespace(**{name: getattr(self._details, name, None) for name in names})


class ForeignConnection:
    """A connection of another library, with the methods of a psycopg connection that our statements need.

    `send`: sends a statement, with psycopg's placeholders.
    """

    def __init__(self, send: Send) -> None:
        self._send = send

    def execute(self, statement: Statement, params: Mapping[str, Any] | None = None) -> Fetched:
        """Send a statement. Raises psycopg.Error."""
        text = statement.as_string(None) if isinstance(statement, composing.Composable) else statement
        text = text.decode() if isinstance(text, bytes) else text
        *before, last = text.split("; ") if text.startswith(SEVERAL) else [text]
        for command in before:
            self._send(command, {})  # some drivers take one command at a time
        return self._send(last, params or {})

    def fetch(self, statement: Statement, params: Mapping[str, Any] | None = None) -> list[Row]:
        """Return the rows of a statement as dicts."""
        found = self.execute(statement, params)
        return [dict(zip(found.names, row, strict=True)) for row in found.rows]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let the block undo what it did if it fails, in the transaction of the connection's user."""
        self.execute("SAVEPOINT pgsched")  # blocks may be nested: the name then stands for the innermost
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK TO SAVEPOINT pgsched; RELEASE SAVEPOINT pgsched")
            raise
        self.execute("RELEASE SAVEPOINT pgsched")


def fetch_foreign(conn: Any) -> Callable[[Statement, Mapping[str, Any] | None], list[Row]] | None:
    """Return what fetches rows on a connection of another library; None for one of psycopg."""
    return conn.fetch if isinstance(conn, ForeignConnection) else None


# ---- SQLAlchemy


def send_by_sqlalchemy(connection: Any) -> Send:
    """Return what sends statements on a SQLAlchemy Connection, with its driver."""

    def send(text: str, params: Mapping[str, Any]) -> Fetched:
        with foreign_errors():
            return fetched(connection.execute(*as_sqlalchemy(text, params, connection.dialect.driver)))

    return send


def send_by_async_sqlalchemy(connection: Any, loop: Bridge) -> Send:
    """Return what sends statements on a SQLAlchemy AsyncConnection, from another thread than its event loop's."""

    def send(text: str, params: Mapping[str, Any]) -> Fetched:
        async def execute() -> Fetched:
            return fetched(await connection.execute(*as_sqlalchemy(text, params, connection.dialect.driver)))

        with foreign_errors():
            return loop.call(execute(), undoes=text.startswith(UNDO))

    return send


def as_sqlalchemy(text: str, params: Mapping[str, Any], driver: str) -> tuple[Any, dict[str, Any]]:
    """Return a statement and its parameters as SQLAlchemy takes them."""
    from sqlalchemy import text as sqlalchemy_text

    values = {name: plain_value(params[name]) for name in PLACEHOLDER.findall(text) if name}

    def written(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%" if found[0] == "%%" else "\\:"
        # In brackets: SQLAlchemy takes no cast for the end of a name. A text is sent as one: for `$1::interval` asyncpg
        # would want a timedelta, and for `$1::text::interval` it takes what psycopg takes.
        is_text = driver == ASYNCPG and isinstance(values[found[1]], str)
        return f"(:{found[1]}\\:\\:text)" if is_text else f"(:{found[1]})"

    return sqlalchemy_text(PLACEHOLDER.sub(written, text)), values


def plain_value(value: Any) -> Any:
    """Return a parameter without psycopg's wrappers."""
    if isinstance(value, Json | Jsonb):
        return (value.dumps or json.dumps)(value.obj)
    return int(value) if type(value) is not bool and isinstance(value, int) else value


def fetched(result: Any) -> Fetched:
    """Return a SQLAlchemy result as psycopg would."""
    if not result.returns_rows:
        return Fetched((), ())
    types = [column[1] for column in result.cursor.description]
    names = list(result.keys())
    rows = [
        tuple(
            read_json(value) if kind in JSON_TYPES and isinstance(value, str) else value
            for kind, value in zip(types, row, strict=True)
        )
        for row in result
    ]
    return Fetched(names, rows)


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Raise errors of other drivers (psycopg2, asyncpg, pg8000 behind SQLAlchemy) as ones that our code reads."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        cause: Any = (error.orig and error.orig.__cause__) or error.orig
        name = "OperationalError" if error.connection_invalidated else type(error).__name__
        raise foreign_error(cause, name) from error
    except ValueError as error:  # psycopg2: a text with NUL
        raise foreign_error(error, "DataError") from error


def foreign_error(cause: Any, name: str) -> ForeignError:
    """Return another driver's error as one that our code reads. `name`: of its class in the DB-API."""
    details = getattr(cause, "diag", cause)
    message = getattr(details, "message_primary", None) or getattr(cause, "message", None) or str(cause)
    sqlstate = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    # asyncpg calls a value that it cannot send an InterfaceError, and a ValueError
    return error_class(sqlstate, "DataError" if isinstance(cause, ValueError) else name)(message, sqlstate, details)


@cache
def error_class(sqlstate: str | None, name: str) -> type[ForeignError]:
    """Return the class of ForeignError that is also psycopg's class for this sqlstate, so that our code catches it.

    `name`: of the class where there is no sqlstate, or psycopg does not know it
    """
    try:
        kind = psycopg.errors.lookup(sqlstate or "")
    except KeyError:
        kind = getattr(psycopg, name, psycopg.Error)
    return type("ForeignError", (ForeignError, kind), {})


# ---- asyncio


class Bridge:
    """Runs coroutines on an event loop for a caller in another thread. `is_cancelled`: `cancel` was called."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_cancelled = False
        self._task: asyncio.Task[Fetched] | None = None

    def call(self, work: Coroutine[Any, Any, Fetched], *, undoes: bool = False) -> Fetched:
        """Return the result of a coroutine that runs on the event loop; return only when it has ended.

        `undoes`: run it even after `cancel`. Raises CancelledError.
        """
        done: Future[Fetched] = Future()

        def deliver(task: asyncio.Task[Fetched]) -> None:
            # not within the coroutine: one that is cancelled before it begins does nothing at all
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            done.set_result(task.result()) if error is None else done.set_exception(error)

        def start() -> None:
            self._task = self._loop.create_task(work)
            self._task.add_done_callback(deliver)
            if self.is_cancelled and not undoes:
                self._task.cancel()

        self._loop.call_soon_threadsafe(start)
        return done.result()

    def cancel(self) -> None:
        """Cancel the current call and all further ones but those that undo. Call it on the event loop."""
        self.is_cancelled = True
        if self._task is not None:
            self._task.cancel()


def send_by_psycopg_async(conn: psycopg.AsyncConnection[Any], loop: Bridge) -> Send:
    """Return what sends statements on a psycopg AsyncConnection, from another thread than its event loop's."""

    def send(text: str, params: Mapping[str, Any]) -> Fetched:
        async def execute() -> Fetched:
            async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
                await cursor.execute(text.encode(), params)
                if cursor.description is None:
                    return Fetched((), ())
                return Fetched([column.name for column in cursor.description], await cursor.fetchall())

        return loop.call(execute(), undoes=text.startswith(UNDO))

    return send
