"""Logins that are members of pgsched's roles."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched.db.schema import roles
from tests.support.waiting import wait_until

LOGINS = {"alice": "producer", "bob": "producer", "worker": "worker", "leader": "leader", "ops": "operator",
          "eye": "viewer", "desk": "console", "nobody": None}  # fmt: skip
DENIED = "42501"


class Logins:
    """The logins of one test, with names that no other test has, because roles belong to the whole server."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._mark = uuid.uuid4().hex[:8]
        self.opened = contextlib.ExitStack()

    def name(self, who: str) -> str:
        return f"pgsched_test_{self._mark}_{who}"

    def dsn(self, who: str) -> str:
        return make_conninfo(self._dsn, user=self.name(who), password="x", passfile="/dev/null")

    def connect(self, who: str) -> psycopg.Connection[Any]:
        conn = psycopg.connect(self.dsn(who), autocommit=True, options="-c search_path=pgsched,public")
        self.opened.callback(conn.close)
        return conn


@contextlib.contextmanager
def superuser(db: psycopg.Connection[Any], dsn: str, password: str) -> Iterator[str]:
    """Yield the DSN of a new superuser with this password, which some servers ask for."""
    name = f"pgsched_test_{uuid.uuid4().hex[:8]}"
    role = sql.Identifier(name)
    db.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(role, password))
    try:
        yield make_conninfo(dsn, user=name, password=password)
    finally:
        db.execute(sql.SQL("DROP ROLE {}").format(role))


def alone(act: Callable[[], object]) -> None:
    """Change the server's roles; repeat that while another test changes them at the same time."""

    def done() -> bool:
        try:
            act()
        except psycopg.errors.InternalError as error:
            if "concurrently" not in str(error):
                raise
            return False
        return True

    wait_until(done, 30, "the other tests to be done with the roles")


@pytest.fixture
def logins(db: psycopg.Connection[Any], dsn: str) -> Iterator[Logins]:
    """Apply pgsched's roles, and yield a login for each."""
    alone(lambda: roles.apply(db))
    made = Logins(dsn)
    for who, role in LOGINS.items():
        name = sql.Identifier(made.name(who))
        db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(name))
        if role is not None:
            member = sql.SQL("GRANT {} TO {}").format(sql.Identifier(f"pgsched_{role}"), name)
            alone(lambda member=member: db.execute(member))  # type: ignore[misc]
    try:
        with made.opened:
            yield made
    finally:
        for who in LOGINS:
            db.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(made.name(who))))


def not_refused(conn: psycopg.Connection[Any], *statements: str) -> dict[str, str]:
    """Return the statements that were not refused with 42501, each with what happened instead."""
    wrong = {}
    for statement in statements:
        try:
            conn.execute("BEGIN")
            conn.execute(statement.encode())
            wrong[statement] = "allowed"
        except psycopg.Error as error:
            if error.sqlstate != DENIED:
                wrong[statement] = f"{error.sqlstate} {error}"
        finally:
            conn.execute("ROLLBACK")
    return wrong


def one(conn: psycopg.Connection[Any], statement: str, *values: Any) -> Any:
    row = conn.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row[0]
