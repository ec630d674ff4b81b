"""Write migrations/schema.sql: the schema after all revisions, as one script (`python -m pgsched.db.schema.dump`).

Invariant: the text depends on the catalog alone, not on the server's version, its time zone or the order of the
revisions. So a test compares it with a freshly migrated database. In an empty database the script makes the same
schema, without the rows that revisions insert.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pgsched.db.connection.connect import Connection, connect
from pgsched.db.connection.transaction_pooling import begin
from pgsched.db.queries import migration
from pgsched.db.statements import folder

HEAD = """-- The whole schema after all revisions: written by `python -m pgsched.db.schema.dump`, not by hand.
-- Read this to see what is there; read the revisions (1000_initial/*.sql and later ones) to see why.

SET check_function_bodies = off;

CREATE SCHEMA pgsched;
"""
SETTINGS = {"search_path": "pg_catalog", "TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "postgres"}


def schema_path() -> Path:
    """Return the path of migrations/schema.sql."""
    return folder("migrations") / "schema.sql"


def schema_text(conn: Connection[Any]) -> str:
    """Return the schema of this database as a script."""
    begin(conn)
    try:
        for name, value in SETTINGS.items():
            conn.execute("SELECT set_config(%s, %s, true)", [name, value])
        parts = migration.dump_statements(conn)
    finally:
        conn.rollback()
    texts = [HEAD]
    for part, statements in parts.items():
        between = "\n\n" if part in ("tables", "functions", "views") else "\n"
        texts += [f"-- {part}\n\n{between.join(statements)}\n"] if statements else []
    return "\n".join(texts)


def write_schema() -> None:
    """Migrate a temporary database of the embedded server, and write its schema."""
    import tempfile

    from pgsched.db.embedded.cluster import Cluster
    from pgsched.db.embedded.server import bin_dir, readable_binaries, server_account
    from pgsched.db.schema.migrate import upgrade

    with tempfile.TemporaryDirectory(prefix="pgsched-schema-") as place:
        directory = Path(place)
        directory.chmod(0o755)
        account = server_account()
        binaries = bin_dir() if account is None else readable_binaries(bin_dir(), directory, account)
        cluster = Cluster(directory / "data", binaries, account, {"fsync": "off"})
        cluster.create("--no-sync")
        cluster.start()
        try:
            upgrade(cluster.dsn())
            with connect(cluster.dsn(), purpose="migrate") as conn:
                schema_path().write_text(schema_text(conn), encoding="utf-8")
        finally:
            cluster.stop("immediate")


if __name__ == "__main__":
    write_schema()
