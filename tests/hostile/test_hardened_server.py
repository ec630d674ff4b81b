"""pgsched works on a server where PUBLIC has lost the rights that a hardening guide takes away."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.db.statements import statements
from tests.support.hostile.short_life import live, ours
from tests.support.logins import Logins, alone

pytestmark = pytest.mark.pg14

MESSAGES = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'"


@pytest.mark.long
def test_no_login_needs_the_right_to_write_messages_into_the_wal(
    logins: Logins, dsn: str, db: psycopg.Connection[Any]
) -> None:
    """A role that may call pg_logical_emit_message can write any amount of data into the WAL."""
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


def test_no_function_of_pgsched_writes_messages_into_the_wal(db: psycopg.Connection[Any]) -> None:
    """A function with its owner's rights could write them even if PUBLIC may not."""
    found = db.execute("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace"
                       " AND prosrc LIKE '%logical_emit%'").fetchall()  # fmt: skip
    assert (found, [name for name, text in statements().items() if b"logical_emit" in text]) == ([], [])
