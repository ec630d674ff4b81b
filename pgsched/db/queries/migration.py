"""Queries that a migration sends beside those of its revisions: flags, identity, lock, index builds, catalog."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, value
from pgsched.db.statements import sql

# kind of object -> the statement that lists them, in the order in which a script creates them
CATALOG = {
    "sequences": "catalog_sequences", "tables": "catalog_tables", "references": "catalog_references",
    "functions": "catalog_functions", "aggregates": "catalog_aggregates", "views": "catalog_views",
    "indexes": "catalog_indexes", "triggers": "catalog_triggers", "grants": "catalog_grants",
    "comments": "catalog_comments",
}  # fmt: skip


def rebuild_flags(conn: Connection[Any], *, migrated: bool) -> None:
    """Rebuild the flags that statements read outside of transactions, if that is due.

    It is due after each migration (`migrated`). Otherwise the flags are rebuilt only if the session's role may. So a
    migration that has nothing to do does not refuse a worker's login.
    """
    if migrated or value(conn, "flags_may_rebuild"):
        conn.execute(sql("flags_rebuild"))


def make_identity(conn: Connection[Any]) -> None:
    """Insert the row that names the database and its fleet, if it is missing, as in a dump of the schema alone."""
    if value(conn, "identity_missing"):
        conn.execute(sql("identity_make"))


def describe_blocking_session(conn: Connection[Any]) -> str | None:
    """Describe the oldest other transaction that holds a lock on pgsched's tables; return None if there is none."""
    row = conn.execute(sql("migrate_in_the_way")).fetchone()
    return None if row is None else str(row[0])


def try_migration_lock(conn: Connection[Any], key: int) -> Row:
    """Try to take the advisory lock of migrations, without waiting.

    Returns `got`, whether the lock was free, and `waits`, whether a role that may migrate holds it. Any role can take
    the lock. A holder that may not migrate is ignored: the caller tries the next key.
    """
    return fetch(conn, "migrate_turn", {"key": key})[0]


def describe_index_build(conn: Connection[Any], pid: int) -> str | None:
    """Describe how far the session `pid` is with the index that it builds; return None if it builds none."""
    row = conn.execute(sql("migrate_index_build"), {"pid": pid}).fetchone()
    return None if row is None else str(row[0])


def dump_statements(conn: Connection[Any]) -> dict[str, list[str]]:
    """Return the statements that would create the objects of the schema, by kind (the keys of `CATALOG`)."""
    return {kind: [row[0] for row in conn.execute(sql(name)).fetchall()] for kind, name in CATALOG.items()}
