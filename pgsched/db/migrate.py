"""The schema is moved only by alembic revisions; a program runs only on the version that it knows.

Several processes may migrate at once: a transaction-level advisory lock makes them take turns.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from pgsched.db import roles
from pgsched.db.connect import Connection, DatabaseError, connect, explain
from pgsched.db.statements import folder
from pgsched.errors import SchemaTooNew, SchemaTooOld

SCHEMA_VERSION = "0004"
MIGRATE_LOCK = 0x70677363_6D696772  # "pgscmigr"


def configuration() -> Any:
    """Alembic's configuration, pointing at our revisions."""
    from alembic.config import Config

    config = Config(output_buffer=io.StringIO(), stdout=io.StringIO())
    config.set_main_option("script_location", str(folder("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


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


def upgrade(dsn: str, *, set_search_path: bool = False, with_roles: bool = False) -> tuple[str | None, str]:
    """Bring the database to this program's version. Returns (version before, version after).

    `set_search_path` puts pgsched into the database's default search_path, so that `INSERT INTO jobs` works
    unqualified in new sessions. `with_roles` puts sql/roles.sql in force; where it is, a migration does so again.
    """
    with connect(dsn, purpose="migrate", timeout_s=0) as conn:
        before = current(conn)
        if before is not None and before > SCHEMA_VERSION:
            check(conn)
        try:
            before = before if before == SCHEMA_VERSION else run_upgrade(conn)
            if with_roles or (before not in (None, SCHEMA_VERSION) and roles.in_force(conn)):
                roles.apply(conn)
            if set_search_path:
                put_on_search_path(conn)
        except DatabaseError as error:
            raise explain(error) from error
    return before, SCHEMA_VERSION


def run_upgrade(conn: Connection[Any]) -> str | None:
    """Run the missing revisions in one transaction; returns the version before."""
    import sqlalchemy
    from alembic import command

    conn.execute("SET lock_timeout = 0")
    conn.autocommit = False
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: conn, poolclass=sqlalchemy.StaticPool)
    with engine.connect() as bind, bind.begin():
        bind.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATE_LOCK})
        before = current(conn)
        bind.execute(sqlalchemy.text("CREATE SCHEMA IF NOT EXISTS pgsched"))
        config = configuration()
        config.attributes["connection"] = bind
        try:
            command.upgrade(config, "head")
        except sqlalchemy.exc.DBAPIError as error:
            if isinstance(error.orig, DatabaseError):
                raise error.orig from error
            raise
    conn.autocommit = True
    return before


def put_on_search_path(conn: Connection[Any]) -> None:
    """Make `pgsched` part of the database's default search_path, keeping what is there."""
    row = conn.execute(
        "SELECT current_database(), coalesce((SELECT substr(cfg, 13) FROM pg_db_role_setting s, unnest(setconfig) cfg"
        " WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()) AND setrole = 0"
        " AND cfg LIKE 'search_path=%'), '\"$user\", public')"
    ).fetchone()
    assert row is not None
    database, path = row
    if "pgsched" not in path:
        from psycopg import sql

        conn.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = {}, pgsched").format(sql.Identifier(database), sql.SQL(path))
        )


def upgrade_sql() -> str:
    """The statements that `upgrade` would run on an empty database, as text."""
    from alembic import command

    config = configuration()
    config.output_buffer = io.StringIO()
    command.upgrade(config, "head", sql=True)
    return "CREATE SCHEMA IF NOT EXISTS pgsched;\n" + str(config.output_buffer.getvalue())


def revisions() -> list[Path]:
    """The revision files that this program ships."""
    return sorted((folder("migrations") / "versions").glob("[0-9]*.py"))
