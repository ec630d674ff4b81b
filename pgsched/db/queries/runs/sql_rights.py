"""Checks of the login in which SQL jobs run.

Invariant: where roles are in force, the text of an SQL job runs in a login that has no role of pgsched. A text can
RESET ROLE and then has the rights of its login. A worker's login may change the runs of all owners.
"""

from __future__ import annotations

from pgsched.db.connection.connect import Connection, connect
from pgsched.db.connection.dsn import parameters
from pgsched.db.queries.runs.workers import which_database
from pgsched.db.rows import rows
from pgsched.db.schema import roles
from pgsched.errors import InputError

WHAT_TO_DO = (
    "allow: roles are in force here, and the text of an SQL job could take this worker's (RESET ROLE): give"
    " --sql-login DSN, a login that is a member of the jobs' owners and has no role of pgsched itself; or, where every"
    " owner of an SQL job may do what this worker may, --sql-as-worker"
)


def refuse_rights(dsn: str, login: str | None, *, as_worker: bool) -> None:
    """Check that SQL jobs may run as this login; None: as the worker's. Raises InputError, PgschedError."""
    with connect(dsn, purpose="worker") as conn:
        if login is not None:
            refuse_login(conn, login)
        elif not as_worker and roles.in_force(conn):
            raise InputError(WHAT_TO_DO, "allow")


def refuse_login(conn: Connection[object], login: str) -> None:
    """Raise InputError for a login of another database, or one that has a role of pgsched where roles are in force."""
    try:
        parameters(login)
    except InputError as error:
        raise InputError(f"sql-login: {str(error).removeprefix('dsn: ')}", "sql-login") from None
    with connect(login, purpose="worker") as other:
        if which_database(other) != which_database(conn):
            raise InputError(
                "sql-login: it leads to another database than the worker's; name that by --sql-dsn", "sql-login"
            )
        if roles.in_force(conn) and (has := [str(row["name"]) for row in rows(other, "roles_of_login")]):
            raise InputError(
                f"sql-login: {other.info.user} is a member of {', '.join(has)}, by itself or by an owner of jobs, and"
                " so the text of every SQL job could be: give a login that is not",
                "sql-login",
            )
