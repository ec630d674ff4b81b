"""Read a whole table of another scheduler, from PostgreSQL or from a file of SQLite.

Invariant: nothing is written, and rows and bytes are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg import sql as composing
from psycopg.rows import dict_row

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection, connect
from pgsched.db.connection.failures import raise_explained
from pgsched.errors import InputError

MOST_ROWS = 20_000
MOST_BYTES = 256 * 1024 * 1024
AT_ONCE = 200  # rows that are fetched together
# A standby will do, and the tables are where the user's own search path finds them.
SETTINGS = {"default_transaction_read_only": "on", "search_path": None}


@contextmanager
def open_source(dsn: str) -> Iterator[Connection[Any]]:
    """Open a connection to the database of a source, on which nothing can be written."""
    with connect(dsn, purpose="import", settings=SETTINGS) as conn:
        yield conn


def read_table(conn: Connection[Any], table: str) -> list[Row]:
    """Return the rows of a table as dicts. `table`: its name, with the schema before a dot where it is needed.

    Raises InputError for a table that is not there or too large, and PgschedError for what the database refuses.
    """
    statement = composing.SQL("SELECT * FROM {}").format(composing.Identifier(*table.split(".")))
    found: list[Row] = []
    size = 0
    try:
        with (
            raise_explained_but_missing(table),
            conn.transaction(),
            conn.cursor("import", row_factory=dict_row) as cursor,
        ):
            cursor.itersize = AT_ONCE
            for row in cursor.execute(statement):
                size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
                found.append(row)
                check_size(table, len(found), size)
    except errors.UndefinedTable:
        name = conn.info.dbname
        raise InputError(f"there is no table {table} in the database {name}", "source") from None
    return found


@contextmanager
def raise_explained_but_missing(table: str) -> Iterator[None]:
    """Raise the database's refusals as errors that explain them, but leave a missing table to the caller."""
    try:
        yield
    except (errors.UndefinedTable, InputError):
        raise
    except psycopg.Error:
        with raise_explained():
            raise


def check_size(table: str, rows: int, size: int) -> None:
    """Raise InputError for a table with too many rows or bytes."""
    if rows > MOST_ROWS:
        raise InputError(f"the table {table} has more than {MOST_ROWS:,} rows", "source")
    if size > MOST_BYTES:
        raise InputError(f"the table {table} has more than {MOST_BYTES // 2**20} MiB", "source")


def read_settings(conn: Connection[Any], names: list[str]) -> dict[str, str]:
    """Return the server's settings of these names that the role may see."""
    with raise_explained():
        found = conn.execute(
            b"SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY (%s)", [names]
        ).fetchall()
    return dict(found)


def passes_row_security(conn: Connection[Any]) -> bool:
    """Check whether the role sees all rows of tables with row security."""
    with raise_explained():
        found = conn.execute(
            b"SELECT rolsuper OR rolbypassrls FROM pg_catalog.pg_roles WHERE rolname = current_user"
        ).fetchone()
    return bool(found and found[0])
