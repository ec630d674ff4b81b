"""The rule: a program runs only on the schema version that it knows."""

from __future__ import annotations

from typing import Any

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import explain
from pgsched.errors import SchemaTooNew, SchemaTooOld

VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011")
SCHEMA_VERSION = VERSIONS[-1]


def current(conn: Connection[Any]) -> str | None:
    """The schema version of the database, None where pgsched was never installed."""
    found = conn.execute("SELECT to_regclass('pgsched.alembic_version') IS NOT NULL").fetchone()
    if not found or not found[0]:
        return None
    row = conn.execute("SELECT version_num FROM pgsched.alembic_version").fetchone()
    return str(row[0]) if row else None


def check(conn: Connection[Any]) -> None:
    """Raise SchemaTooOld or SchemaTooNew unless the database has the version of this program."""
    try:
        version = current(conn)
    except DatabaseError as error:
        raise explain(error) from error
    if version is None:
        raise SchemaTooOld("the database has no pgsched schema: run `pgsched migrate`")
    if version < SCHEMA_VERSION:
        raise SchemaTooOld(f"the schema is version {version}, older than {SCHEMA_VERSION}: run `pgsched migrate`")
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(f"the schema is version {version}, newer than {SCHEMA_VERSION}: upgrade this pgsched")
