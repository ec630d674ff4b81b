"""Check the schema version of a database: a program runs only on the version that it knows.

Invariant: versions are compared by their place in the list of revisions, never as strings. A version that is not in the
list belongs to a newer program. Versions before 0.1.0 are refused by name and never changed.
"""

from __future__ import annotations

from typing import Any

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import explain_error
from pgsched.db.statements import folder
from pgsched.errors import SchemaTooNew, SchemaTooOld

# The revisions that this program contains, oldest first.
VERSIONS = tuple(sorted(path.stem for path in (folder("migrations") / "versions").glob("[0-9]*.py")))
SCHEMA_VERSION = VERSIONS[-1]
UNSUPPORTED_VERSIONS = tuple(
    f"{number:04}" for number in range(1, 12)
)  # versions before 0.1.0, since squashed into one


def current(conn: Connection[Any]) -> str | None:
    """Return the schema version of the database; None where pgsched was never installed."""
    found = conn.execute("SELECT to_regclass('pgsched.alembic_version') IS NOT NULL").fetchone()
    if not found or not found[0]:
        return None
    row = conn.execute("SELECT version_num FROM pgsched.alembic_version").fetchone()
    return str(row[0]) if row else None


def refuse_unknown(version: str | None) -> None:
    """Raise SchemaTooOld or SchemaTooNew if this program cannot migrate from this version. None: an empty database."""
    if version in UNSUPPORTED_VERSIONS:
        raise SchemaTooOld(f"the schema is version {version}, made before 0.1.0: dump what you need, drop schema "
                           "pgsched, then run `pgsched migrate`")  # fmt: skip
    if version is not None and version not in VERSIONS:
        raise SchemaTooNew(f"the schema is version {version}, newer than {SCHEMA_VERSION}: upgrade this pgsched")


def missing(version: str | None, target: str | None = None) -> tuple[str, ...]:
    """Return the revisions after a known version (None: an empty database) up to `target`, or to this program's."""
    first = 0 if version is None else VERSIONS.index(version) + 1
    return VERSIONS[first : VERSIONS.index(target or SCHEMA_VERSION) + 1]


def check_version(conn: Connection[Any]) -> None:
    """Raise SchemaTooOld or SchemaTooNew unless the database has this program's version."""
    try:
        version = current(conn)
    except DatabaseError as error:
        raise explain_error(error) from error
    refuse_unknown(version)
    if version is None:
        raise SchemaTooOld("the database has no pgsched schema: run `pgsched migrate`")
    if missing(version):
        raise SchemaTooOld(f"the schema is version {version}, older than {SCHEMA_VERSION}: run `pgsched migrate`")
