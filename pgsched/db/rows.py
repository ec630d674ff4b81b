"""Rows of statements, by the names of their columns: dicts, values of a class, or the only column.

Invariant: nothing here or in its callers counts on the order of columns. `rows` and `one` raise PgschedError for
whatever the database refuses; the others raise the driver's errors, for loops to classify.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import sql as composing
from psycopg.rows import class_row, dict_row, tuple_row

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import explained
from pgsched.db.statements import sql

T = TypeVar("T")
Statement = bytes | composing.Composed


@contextmanager
def acting(conn: Connection[Any]) -> Iterator[None]:
    """Let the audit know for whom the statements of this block are sent, if the connection says. SET LOCAL, because
    behind a pooler the next transaction is somebody else's."""
    user = getattr(conn, "acting_for", None)
    if user is None:
        yield
        return
    with conn.transaction():
        conn.execute(sql("audit_acting_for"), {"user": user})
        yield


def fetch(
    conn: Connection[Any],
    statement: str | Statement,
    params: Mapping[str, Any] | None = None,
    prepare: bool | None = None,
) -> list[Row]:
    """The rows of a statement, named or composed, as dicts. `prepare`: as psycopg's `execute` has it."""
    text = sql(statement) if isinstance(statement, str) else statement
    with acting(conn), conn.cursor(row_factory=dict_row) as cursor:
        # never None: psycopg would leave %% doubled in statements without parameters
        return cursor.execute(text, params or {}, prepare=prepare).fetchall()


def values_of(kind: type[T]) -> Callable[[psycopg.Cursor[Any]], Callable[[Sequence[Any]], T]]:
    """A row factory as psycopg's `class_row`. Where the columns stand in the order of the fields of `kind`, a
    NamedTuple, it compares names once a result instead of once a row: that is four times as quick."""

    def factory(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], T]:
        fields: tuple[str, ...] | None = getattr(kind, "_fields", None)
        if fields is not None and fields == tuple(column.name for column in cursor.description or ()):
            make: Callable[[Sequence[Any]], T] = kind._make  # type: ignore[attr-defined]
            return make
        return class_row(kind)(cursor)

    return factory


def fetch_as(conn: Connection[Any], kind: type[T], statement: str, params: Mapping[str, Any] | None = None) -> list[T]:
    """The rows as values of `kind`, whose fields have the names of the columns."""
    with acting(conn), conn.cursor(row_factory=values_of(kind)) as cursor:
        return cursor.execute(sql(statement), params or {}).fetchall()


def column(conn: Connection[Any], statement: str, params: Mapping[str, Any] | None = None) -> list[Any]:
    """The values of a statement's only column."""
    with acting(conn), conn.cursor(row_factory=tuple_row) as cursor:
        return [found for (found,) in cursor.execute(sql(statement), params or {}).fetchall()]


def value(conn: Connection[Any], statement: str, params: Mapping[str, Any] | None = None) -> Any:
    """The value of a statement that gives one row of one column; None without a row."""
    found = column(conn, statement, params)
    return found[0] if found else None


def rows(conn: Connection[Any], statement: str | Statement, params: Mapping[str, Any] | None = None) -> list[Row]:
    """As `fetch`, with errors as a person is told them."""
    with explained():
        return fetch(conn, statement, params)


def one(conn: Connection[Any], statement: str | Statement, params: Mapping[str, Any] | None = None) -> Row | None:
    """The first row, or None."""
    found = rows(conn, statement, params)
    return found[0] if found else None
