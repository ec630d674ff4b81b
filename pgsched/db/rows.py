"""Fetch the rows of statements by column name: dicts, values of a class, or the only column.

Invariant: neither this module nor its callers depend on the order of columns. `rows` and `first_row` raise PgschedError
for everything that the database refuses. The other functions raise the driver's errors, for loops to classify.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import sql as composing
from psycopg.rows import class_row, dict_row, tuple_row

from pgsched.core.model import Row
from pgsched.db.callers.foreign import fetch_foreign
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import raise_explained
from pgsched.db.statements import sql

T = TypeVar("T")
Statement = bytes | composing.Composed


@contextmanager
def acting_for_user(conn: Connection[Any]) -> Iterator[None]:
    """Tell the audit for which person the block's statements are sent, if the connection names one.

    SET LOCAL is used, because behind a pooler the next transaction belongs to another client.
    """
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
    """Return the rows of a statement, named or composed, as dicts. `prepare`: as for psycopg's `execute`."""
    text = sql(statement) if isinstance(statement, str) else statement
    if (foreign := fetch_foreign(conn)) is not None:
        return foreign(text, params)
    with acting_for_user(conn), conn.cursor(row_factory=dict_row) as cursor:
        # Never pass None: psycopg would leave %% doubled in statements without parameters.
        return cursor.execute(text, params or {}, prepare=prepare).fetchall()


def values_of(kind: type[T]) -> Callable[[psycopg.Cursor[Any]], Callable[[Sequence[Any]], T]]:
    """Return a row factory like psycopg's `class_row`, but faster for a NamedTuple.

    If the columns are in the order of the fields of `kind`, names are compared once per result, not once per row. That
    is four times as fast.
    """

    def factory(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], T]:
        fields: tuple[str, ...] | None = getattr(kind, "_fields", None)
        if fields is not None and fields == tuple(column.name for column in cursor.description or ()):
            make: Callable[[Sequence[Any]], T] = kind._make  # type: ignore[attr-defined]
            return make
        return class_row(kind)(cursor)

    return factory


def fetch_as(conn: Connection[Any], kind: type[T], statement: str, params: Mapping[str, Any] | None = None) -> list[T]:
    """Return the rows as values of `kind`, whose fields have the names of the columns."""
    if (foreign := fetch_foreign(conn)) is not None:
        return [kind(**row) for row in foreign(sql(statement), params)]
    with acting_for_user(conn), conn.cursor(row_factory=values_of(kind)) as cursor:
        return cursor.execute(sql(statement), params or {}).fetchall()


def column(conn: Connection[Any], statement: str, params: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the values of a statement's only column."""
    if (foreign := fetch_foreign(conn)) is not None:
        return [found for row in foreign(sql(statement), params) for found in row.values()]
    with acting_for_user(conn), conn.cursor(row_factory=tuple_row) as cursor:
        return [found for (found,) in cursor.execute(sql(statement), params or {}).fetchall()]


def value(conn: Connection[Any], statement: str, params: Mapping[str, Any] | None = None) -> Any:
    """Return the value of a statement with one row of one column; None without a row."""
    found = column(conn, statement, params)
    return found[0] if found else None


def rows(conn: Connection[Any], statement: str | Statement, params: Mapping[str, Any] | None = None) -> list[Row]:
    """Return the rows as `fetch` does; raise errors as PgschedError."""
    with raise_explained():
        return fetch(conn, statement, params)


def first_row(conn: Connection[Any], statement: str | Statement, params: Mapping[str, Any] | None = None) -> Row | None:
    """Return the first row; None without a row."""
    found = rows(conn, statement, params)
    return found[0] if found else None
