"""Sessions of processes that do not renew them, and keys bound to them: as SQL sends it."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg

Db = psycopg.Connection[Any]
SHORT = "1 s"  # the shortest ttl


def open_session(db: Db, ttl: str = SHORT) -> uuid.UUID:
    """Open a session that nobody renews; return its token."""
    token = uuid.uuid4()
    db.execute("SELECT pgsched.session_open(%s, %s::text::interval)", [token, ttl])
    return token


def put_bound(db: Db, key: str, session: uuid.UUID, value: str = "1") -> int:
    """Bind a key to a session; return its version."""
    return number(db, "SELECT pgsched.kv_put(%s, %s::text::jsonb, session => %s)", key, value, session)


def put_many(db: Db, prefix: str, count: int) -> None:
    """Write so many keys in one transaction: PREFIX1, PREFIX2 and so on."""
    db.execute(
        "SELECT count(pgsched.kv_put(%s::text || n, to_jsonb(n))) FROM generate_series(1, %s) n", [prefix, count]
    )


def number(db: Db, statement: str, *values: Any) -> Any:
    """Return the only value of a statement's only row."""
    row = db.execute(statement.encode(), values or None).fetchone()
    assert row is not None
    return row[0]


def cut_connections(db: Db, purpose: str) -> int:
    """Cut the connections that pgsched opened for a purpose; return how many there were."""
    return number(
        db,
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE %s",
        f"pgsched {purpose} %",
    )


def change_function(db: Db, function: str, guard: str, instead: str = "") -> None:
    """Replace a function by itself with a guard taken out. Fail unless the guard is there exactly once."""
    text = number(db, "SELECT pg_get_functiondef(%s::regproc)", f"pgsched.{function}")
    assert text.count(guard) == 1, f"{function} has {guard!r} {text.count(guard)} times"
    db.execute(text.replace(guard, instead).encode())
