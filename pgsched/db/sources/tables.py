"""Read a whole table of another scheduler, from PostgreSQL or from a file of SQLite.

Invariant: nothing is written, rows and bytes are bounded, and nothing runs that others have put into the database.

A view runs functions of whoever made it, with the rights of whoever reads it
(https://www.postgresql.org/docs/current/sql-createview.html). So does a policy of row security. No scheduler keeps its
jobs in a view. Only pg_cron has a policy, and that one calls no function of a user.

Tables that inherit from the table are not read, because one of them may be a foreign table.

The owner of a database may put a schema of his before pg_catalog in everybody's search path. So the path is only read,
to find the table in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from psycopg import sql as composing
from psycopg.rows import dict_row

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection, connect
from pgsched.db.connection.failures import raise_explained
from pgsched.errors import InputError

MOST_ROWS = 20_000
MOST_BYTES = 256 * 1024 * 1024
AT_ONCE = 200  # rows that are fetched together
ORDINARY = "r"  # pg_class.relkind of a table without partitions: a partition may be a foreign table
# A standby will do, and the tables are where the user's own search path finds them.
SETTINGS = {"default_transaction_read_only": "on", "search_path": None}
FIND_TABLE = b"""
SELECT n.nspname, c.oid, c.relkind::pg_catalog.text
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = %(table)s AND n.nspname = ANY (%(schemas)s)
ORDER BY pg_catalog.array_position(%(schemas)s::name[], n.nspname)
LIMIT 1
"""


# The policy of pg_cron is known by its text: operators are PostgreSQL's own, and the column has no cast.
FIND_POLICY = b"""
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_policy AS p
    WHERE p.polrelid = %(oid)s AND p.polcmd IN ('r', '*') AND p.polqual IS NOT NULL
      AND NOT (
          pg_catalog.pg_get_expr(p.polqual, p.polrelid) IN ('(username = CURRENT_USER)', '(CURRENT_USER = username)')
          AND EXISTS (
              SELECT FROM pg_catalog.pg_attribute AS a
              WHERE a.attrelid = p.polrelid AND a.attname = 'username'
                AND a.atttypid IN ('pg_catalog.text'::pg_catalog.regtype, 'pg_catalog.name'::pg_catalog.regtype)
          )
      )
) AND pg_catalog.row_security_active(%(oid)s::pg_catalog.oid)
"""


class Found(NamedTuple):
    """A table that was found: its schema, and its oid and kind as pg_class has them."""

    schema: str
    oid: int
    kind: str


@contextmanager
def open_source(dsn: str) -> Iterator[Connection[Any]]:
    """Open a connection to the database of a source, on which nothing can be written."""
    with connect(dsn, purpose="import", settings=SETTINGS) as conn:
        yield conn


@contextmanager
def sealed_path(conn: Connection[Any]) -> Iterator[list[str]]:
    """Open a transaction in which names mean those of PostgreSQL itself; yield the schemas of the user's own path.

    Raises the PgschedError that explains what the database refuses.
    """
    with raise_explained(), conn.transaction():
        row = conn.execute(b"SELECT pg_catalog.current_schemas(true)::pg_catalog.text[]").fetchone()
        conn.execute(b"SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)")
        yield row[0] if row else []


def read_table(conn: Connection[Any], table: str) -> list[Row]:
    """Return the rows of a table as dicts. `table`: its name, with the schema before a dot where it is needed.

    Raises InputError for a table that is not there or too large, and PgschedError for what the database refuses.
    """
    found: list[Row] = []
    size = 0
    with sealed_path(conn) as schemas, conn.cursor("import", row_factory=dict_row) as cursor:
        name = check_table(conn, table, schemas)
        cursor.itersize = AT_ONCE
        for row in cursor.execute(composing.SQL("SELECT * FROM ONLY {}").format(name)):
            size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
            found.append(row)
            check_size(table, len(found), size)
    return found


def check_table(conn: Connection[Any], table: str, schemas: list[str]) -> composing.Identifier:
    """Return the whole name of a table, which is locked until the transaction ends. `schemas`: where to look for it.

    The server counts the bytes before any are fetched. Raises InputError for a table that is not there, for what is no
    ordinary table, for one with a policy, and for one with too many rows or bytes.
    """
    found = find_table(conn, table, schemas)
    if found is None:
        raise InputError(f"there is no table {table} in the database {conn.info.dbname}", "source")
    if found.kind != ORDINARY:
        raise InputError(f"{table} is no table: a view would run what its maker likes, with your rights", "source")
    name = composing.Identifier(found.schema, table.rpartition(".")[2])
    conn.execute(composing.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
    if find_table(conn, table, schemas) != found:
        raise InputError(f"the table {table} was replaced while it was read", "source")
    if (conn.execute(FIND_POLICY, {"oid": found.oid}).fetchone() or (True,))[0]:
        text = "has a policy, which runs what its maker likes, with your rights: read it as its owner or a superuser"
        raise InputError(f"{table} {text}", "source")
    counted = composing.SQL(
        "SELECT count(*), coalesce(sum(octet_length(t::text)), 0)::bigint FROM (SELECT * FROM ONLY {} LIMIT {}) AS t"
    ).format(name, composing.Literal(MOST_ROWS + 1))
    rows, size = conn.execute(counted).fetchone() or (0, 0)
    check_size(table, rows, size)
    return name


def find_table(conn: Connection[Any], table: str, schemas: list[str]) -> Found | None:
    """Return the table of a name; None where there is none. `schemas`: where to look if the name has no schema."""
    schema, _, alone = table.rpartition(".")
    row = conn.execute(FIND_TABLE, {"table": alone, "schemas": [schema] if schema else schemas}).fetchone()
    return None if row is None else Found(*row)


def check_size(table: str, rows: int, size: int) -> None:
    """Raise InputError for a table with too many rows or bytes."""
    if rows > MOST_ROWS:
        raise InputError(f"the table {table} has more than {MOST_ROWS:,} rows", "source")
    if size > MOST_BYTES:
        raise InputError(f"the table {table} has more than {MOST_BYTES // 2**20} MiB", "source")


def read_settings(conn: Connection[Any], names: list[str]) -> dict[str, str]:
    """Return the server's settings of these names that the role may see."""
    with sealed_path(conn):
        found = conn.execute(
            b"SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY (%s)", [names]
        ).fetchall()
    return dict(found)


def passes_row_security(conn: Connection[Any]) -> bool:
    """Check whether the role sees all rows of tables with row security."""
    with sealed_path(conn):
        found = conn.execute(
            b"SELECT rolsuper OR rolbypassrls FROM pg_catalog.pg_roles WHERE rolname = current_user"
        ).fetchone()
    return bool(found and found[0])
