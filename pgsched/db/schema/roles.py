"""Least privilege. The rule: what each role may do is said in one place, `sql/roles.sql`, and put in force as a whole.

It is opt-in (`pgsched migrate --roles`). Where it is in force every later migration puts it in force again, because new
tables and functions belong to whoever migrates and may be used by everybody.
"""

from __future__ import annotations

from typing import Any

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import explain
from pgsched.db.statements import folder
from pgsched.errors import NotPermitted

ROLES = ("owner", "worker", "leader", "producer", "operator", "viewer", "console")
IN_FORCE = "SELECT EXISTS (SELECT FROM pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all')"


def text() -> str:
    """The statements, as they are sent."""
    return (folder("sql") / "roles.sql").read_text(encoding="utf-8")


def script() -> str:
    """The same for psql, all or nothing."""
    return f"BEGIN;\n{text()}COMMIT;"


def in_force(conn: Connection[Any]) -> bool:
    """Has this database roles?"""
    row = conn.execute(IN_FORCE).fetchone()
    return row is not None and bool(row[0])


def apply(conn: Connection[Any]) -> None:
    """Make the roles and give them what they need; all or nothing. Raises NotPermitted."""
    try:
        with conn.transaction():
            conn.execute("SET LOCAL statement_timeout = 0")
            conn.execute(text().encode())
    except DatabaseError as error:
        if error.sqlstate == "42501" and "grant role" in str(error):
            user = conn.info.user
            raise NotPermitted(
                f"the roles are there already and {user} is no member of their owner: let a superuser, or whoever made"
                f" them, GRANT pgsched_owner TO {user}"
            ) from error
        if error.sqlstate == "42501" and "create role" in str(error):
            raise NotPermitted(
                f"{conn.info.user} may make no roles: run `pgsched migrate --roles` as a role with CREATEROLE"
            ) from error
        raise explain(error) from error
