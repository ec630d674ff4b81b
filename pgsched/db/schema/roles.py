"""Apply the roles of pgsched with their least privileges, as `sql/roles.sql` defines them.

Invariant: only `sql/roles.sql` says what each role may do, and it is always applied as a whole.

Roles are optional (`pgsched migrate --roles`). Where they are in force, every later migration applies them again. New
tables and functions belong to the migrating role, and new functions may be used by every role.
"""

from __future__ import annotations

from typing import Any

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import explain_error
from pgsched.db.statements import folder
from pgsched.errors import NotPermitted

ROLES = ("owner", "worker", "leader", "producer", "operator", "viewer", "console")
IN_FORCE = "SELECT EXISTS (SELECT FROM pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all')"


def text() -> str:
    """Return the statements, as they are sent."""
    return (folder("sql") / "roles.sql").read_text(encoding="utf-8")


def script() -> str:
    """Return the statements for psql, in one transaction."""
    return f"BEGIN;\n{text()}COMMIT;"


def in_force(conn: Connection[Any]) -> bool:
    """Check whether the roles are in force in this database."""
    row = conn.execute(IN_FORCE).fetchone()
    return row is not None and bool(row[0])


def apply(conn: Connection[Any]) -> None:
    """Create the roles and grant what they need, in one transaction. Raises NotPermitted."""
    try:
        with conn.transaction():
            conn.execute("SET LOCAL statement_timeout = 0")
            conn.execute(text().encode())
    except DatabaseError as error:
        if error.sqlstate == "42501" and "grant role" in str(error):
            user = conn.info.user
            raise NotPermitted(
                f"the roles are there already and {user} is no member of their owner: let a superuser, or the role that"
                f" made them, GRANT pgsched_owner TO {user}"
            ) from error
        if error.sqlstate == "42501" and "create role" in str(error):
            raise NotPermitted(
                f"{conn.info.user} may make no roles: run `pgsched migrate --roles` as a role with CREATEROLE"
            ) from error
        raise explain_error(error) from error
