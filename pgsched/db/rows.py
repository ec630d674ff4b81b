"""The rule: a command's statement gives dict rows, and whatever the database refuses comes back as a PgschedError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql as composing
from psycopg.rows import dict_row

from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import explain
from pgsched.db.statements import sql

Row = dict[str, Any]
Statement = bytes | composing.Composed


@contextmanager
def explained() -> Iterator[None]:
    """Turn the database's refusal into the error that says which field, why and what to do."""
    try:
        yield
    except psycopg.Error as error:
        raise explain(error) from error


def fetch(conn: Connection[Any], statement: str | Statement, params: Mapping[str, Any] | None = None) -> list[Row]:
    """The rows of a statement, named (`sql/<name>.sql`) or composed; errors are the driver's, for loops to classify."""
    text = sql(statement) if isinstance(statement, str) else statement
    with conn.cursor(row_factory=dict_row) as cursor:
        # never None: psycopg would leave %% doubled in statements without parameters
        return cursor.execute(text, params or {}).fetchall()


def rows(conn: Connection[Any], statement: str | Statement, params: Mapping[str, Any] | None = None) -> list[Row]:
    """As `fetch`, with errors as a person is told them."""
    with explained():
        return fetch(conn, statement, params)


def one(conn: Connection[Any], statement: str | Statement, params: Mapping[str, Any] | None = None) -> Row | None:
    """The first row, or None."""
    found = rows(conn, statement, params)
    return found[0] if found else None
