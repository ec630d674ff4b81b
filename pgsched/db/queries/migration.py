"""What a migration asks beside the statements of its revisions."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, value
from pgsched.db.statements import sql

# What there is in a database, in the order in which a script makes it.
CATALOG = {
    "sequences": "catalog_sequences", "tables": "catalog_tables", "references": "catalog_references",
    "functions": "catalog_functions", "aggregates": "catalog_aggregates", "views": "catalog_views",
    "indexes": "catalog_indexes", "triggers": "catalog_triggers", "grants": "catalog_grants",
    "comments": "catalog_comments",
}  # fmt: skip


def rebuild_flags(conn: Connection[Any], *, migrated: bool) -> None:
    """Rebuild the flags that statements read where that is due: after a migration in any case."""
    if migrated or value(conn, "flags_may_rebuild"):
        conn.execute(sql("flags_rebuild"))


def make_identity(conn: Connection[Any]) -> None:
    """Give the database its identity, if it has none."""
    if value(conn, "identity_missing"):
        conn.execute(sql("identity_make"))


def in_the_way(conn: Connection[Any]) -> str | None:
    """Who holds locks on our tables, the oldest transaction first; None: nobody any more."""
    row = conn.execute(sql("migrate_in_the_way")).fetchone()
    return None if row is None else str(row[0])


def take_turn(conn: Connection[Any], key: int) -> Row:
    """Try to take the lock of migrations: `got`, and whether somebody `waits` who may migrate."""
    return fetch(conn, "migrate_turn", {"key": key})[0]


def index_progress(conn: Connection[Any], pid: int) -> str | None:
    """How far the session `pid` is with the index that it builds; None: it builds none."""
    row = conn.execute(sql("migrate_progress"), {"pid": pid}).fetchone()
    return None if row is None else str(row[0])


def catalog(conn: Connection[Any]) -> dict[str, list[str]]:
    """The statements that would make what there is in the schema, by kind."""
    return {kind: [row[0] for row in conn.execute(sql(name)).fetchall()] for kind, name in CATALOG.items()}
