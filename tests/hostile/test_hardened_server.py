"""A server on which PUBLIC has lost rights that a hardening guide takes away is as good as any."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.db.statements import statements
from tests.support.hostile.short_life import live, ours
from tests.support.logins import Logins, alone

pytestmark = pytest.mark.pg14

MESSAGES = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'"


def test_nobody_needs_to_write_messages_into_the_servers_log(
    logins: Logins, dsn: str, db: psycopg.Connection[Any]
) -> None:
    """Whoever may call pg_logical_emit_message writes into the WAL as much as he likes."""
    functions = [name for (name,) in db.execute(MESSAGES.encode()).fetchall()]
    for name in functions:
        db.execute(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC".encode())
    worker = logins.connect("worker")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.execute("SELECT pg_logical_emit_message(true, 'a', 'b')")
    for role in ("pgsched_leader", logins.name("alice")):
        alone(lambda role=role: db.execute(f'GRANT "{role}" TO "{logins.name("worker")}"'.encode()))  # type: ignore[misc]
    with ours(dsn) as own:
        life = live(
            own, worker_dsn=logins.dsn("worker"), operator_dsn=logins.dsn("ops"), producer_dsn=logins.dsn("alice")
        )
    assert life.said == []


def test_no_function_of_ours_writes_such_messages_for_its_caller(db: psycopg.Connection[Any]) -> None:
    """With its owner's rights one would, whatever was taken from PUBLIC."""
    found = db.execute("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace"
                       " AND prosrc LIKE '%logical_emit%'").fetchall()  # fmt: skip
    assert (found, [name for name, text in statements().items() if b"logical_emit" in text]) == ([], [])
