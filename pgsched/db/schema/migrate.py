"""Migrate the schema with alembic revisions, the only way to change it.

Several processes may migrate at once: an advisory lock makes them take turns. Runs go on during a migration. Slow
changes come before a revision, in steps (steps.py beside this). The revision itself is one short transaction. An
interrupted migration continues where it stopped.
"""

from __future__ import annotations

import io
import re
from functools import partial
from typing import Any

from pgsched.db.connection.connect import Connection, DatabaseError, connect, enable_client_check
from pgsched.db.connection.failures import explain_error
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries import migration
from pgsched.db.schema import roles
from pgsched.db.schema.steps import Tell, report_index_build, retry_for_locks, run_step, steps, turn
from pgsched.db.schema.version import SCHEMA_VERSION, VERSIONS, current, missing, refuse_unknown
from pgsched.db.statements import folder
from pgsched.errors import InputError

WAIT_S = 600.0
SETTINGS = {"client_min_messages": "warning"}
SCHEMA_NAME = re.compile(r'("(?:[^"]|"")*")|([^",\s]+)')  # in a search_path: quoted or plain
MIGRATE_LOCK = 0x70677363_6D696772  # "pgscmigr"


def configuration() -> Any:
    """Return alembic's configuration, with our folder of revisions."""
    from alembic.config import Config

    config = Config(output_buffer=io.StringIO(), stdout=io.StringIO())
    config.set_main_option("script_location", str(folder("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def ignore_message(_: str) -> None:
    """Ignore a message: the default for `tell`."""


def upgrade(
    dsn: str,
    *,
    set_search_path: bool = False,
    with_roles: bool = False,
    to: str | None = None,
    wait_s: float = WAIT_S,
    tell: Tell = ignore_message,
) -> tuple[str | None, str]:
    """Migrate the database to this program's version, or to `to`. Return (version before, version after).

    `set_search_path`: put pgsched into the database's default search_path, so that `INSERT INTO jobs` works in new
        sessions. An application that expects its own tables under these names would then find pgsched's.
    `with_roles`: apply sql/roles.sql. Where the roles are in force, every migration applies it again.
    `wait_s`: for how many seconds to try for a lock that others hold.
    `tell`: called with one line for each thing that takes time.

    Raises SchemaTooNew, NotPermitted, and:

    - InputError for an unknown or older version, or where tables on the search path have the names of pgsched's tables.
    - SchemaTooOld for a database made before 0.1.0, which stays unchanged.
    """
    target = to or SCHEMA_VERSION
    if target not in VERSIONS:
        raise InputError(f"to: there is no version {target!r}: there are {', '.join(VERSIONS)}", "to")
    if with_roles and target != SCHEMA_VERSION:
        raise InputError(f"to: the roles are those of version {SCHEMA_VERSION}: migrate to it, or leave them out", "to")
    with connect(dsn, purpose="migrate", timeout_s=0, settings=SETTINGS) as conn:
        conn.add_notice_handler(lambda notice: tell(str(notice.message_primary)))
        if is_shared(conn):
            raise InputError("dsn: migrate needs a session of its own: give a DSN that goes round the pooler", "dsn")
        enable_client_check(conn)  # if this process is killed, its statement ends soon, and its lock with it
        try:
            with turn(conn, MIGRATE_LOCK, tell):
                before = current(conn)
                refuse_unknown(before)
                if set_search_path:
                    refuse_shadowed(conn)
                move(conn, before, target, wait_s, tell)
                conn.execute(validation_script())
                migration.rebuild_flags(conn, migrated=before != target)
                if target == SCHEMA_VERSION:
                    migration.make_identity(conn)
                if with_roles:
                    retry_for_locks(conn, lambda: roles.apply(conn), "roles", wait_s, tell)
                if set_search_path:
                    put_on_search_path(conn)
        except DatabaseError as error:
            raise explain_error(error) from error
    return before, target


def move(conn: Connection[Any], before: str | None, target: str, wait_s: float, tell: Tell) -> None:
    """Run the missing revisions: all at once in an empty database, else one by one."""
    if before is None:
        return revise(conn, target, online=False)
    if missing(target, before):
        raise InputError(f"to: {before} cannot be taken back to {target}: restore a backup made before it", "to")
    for version in missing(before, target):
        todo = steps(version)
        for number, step in enumerate(todo, 1):
            tell(f"{step.name} ({number} of {len(todo)})")
            with report_index_build(conn, step, tell):
                retry_for_locks(conn, partial(run_step, conn, step), step.name, wait_s, tell)
        tell(f"{version}: tables and functions")
        retry_for_locks(conn, partial(revise, conn, version, online=True), version, wait_s, tell)
    return None


def revise(conn: Connection[Any], target: str, *, online: bool) -> None:
    """Let alembic run revisions in one transaction. `online`: the steps before them are done already."""
    import sqlalchemy
    from alembic import command

    config = configuration()
    config.attributes["online"] = online
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: conn, poolclass=sqlalchemy.StaticPool)
    in_force = online and roles.in_force(conn)
    conn.execute("SET lock_timeout = 0")
    conn.autocommit = False
    try:
        with engine.connect() as bind, bind.begin():
            bind.execute(sqlalchemy.text("CREATE SCHEMA IF NOT EXISTS pgsched"))
            config.attributes["connection"] = bind
            command.upgrade(config, target)
            if in_force and target == SCHEMA_VERSION:
                roles.apply(conn)  # in the same transaction, because new functions are open to every role until then
    except sqlalchemy.exc.DBAPIError as error:
        if isinstance(error.orig, DatabaseError):
            raise error.orig from error
        raise
    finally:
        conn.rollback()
        conn.autocommit = True


def refuse_shadowed(conn: Connection[Any]) -> None:
    """Refuse to put pgsched on the search path after an application's tables that have the same names.

    An unqualified name would still mean the application's tables. Raises InputError.
    """
    from pgsched.db.schema.tables import runs

    _, path = database_path(conn)
    with conn.transaction():
        conn.execute("SELECT set_config('search_path', %s, true)", [path])
        found = conn.execute(
            "SELECT c.oid::regclass::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
            " ON n.oid = c.relnamespace WHERE c.relname = ANY (%s) AND n.nspname = ANY (current_schemas(false))"
            " AND n.nspname <> 'pgsched' ORDER BY 1",
            [[table.name for table in runs.metadata.sorted_tables]],
        ).fetchall()
    if found:
        names = ", ".join(name for (name,) in found[:5])
        raise InputError(
            f"set-search-path: the database has tables of its own of these names ({names}), which a plain name would go"
            " on meaning: write pgsched.jobs",
            "set_search_path",
        )


def database_path(conn: Connection[Any]) -> tuple[str, str]:
    """Return the database's name and its default search_path."""
    row = conn.execute(
        "SELECT current_database(), coalesce((SELECT substr(cfg, 13) FROM pg_db_role_setting s, unnest(setconfig) cfg"
        " WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()) AND setrole = 0"
        " AND cfg LIKE 'search_path=%'), '\"$user\", public')"
    ).fetchone()
    assert row is not None
    return str(row[0]), str(row[1])


def put_on_search_path(conn: Connection[Any]) -> None:
    """Add `pgsched` to the database's default search_path, and keep its other parts."""
    database, path = database_path(conn)
    names = [schema or name.lower() for schema, name in SCHEMA_NAME.findall(path)]
    if '"pgsched"' not in names and "pgsched" not in names:
        from psycopg import sql

        before = sql.SQL("" if names in ([], ['""']) else f"{path}, ")  # an empty path has no place for another name
        conn.execute(sql.SQL("ALTER DATABASE {} SET search_path = {}pgsched").format(sql.Identifier(database), before))


def validation_script() -> bytes:
    """Return the script that validates new CHECKs for old rows."""
    return (folder("migrations") / "validate.sql").read_bytes()
