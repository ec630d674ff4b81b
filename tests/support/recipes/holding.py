"""Sessions and locks by the functions of the schema."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg


def opened(db: psycopg.Connection[Any], ttl: str = "1 hour", name: str = "me") -> UUID:
    """Open a session, and return its token."""
    token = uuid4()
    db.execute("SELECT pgsched.session_open(%s, %s::interval, %s)", [token, ttl, name])
    return token


def asked(db: psycopg.Connection[Any], name: str, session: UUID, **more: Any) -> int | None:
    """Ask for a lock until the session ends; return the fence, None if it is not granted yet."""
    given = {"wait": None, "session": session} | more
    named = ", ".join(f"{column} => %s" for column in given)
    row = db.execute(
        f"SELECT fence FROM pgsched.lock_acquire(%s, %s, {named})".encode(), [name, uuid4(), *given.values()]
    ).fetchone()
    assert row is not None
    fence: int | None = row[0]
    return fence


def back(db: psycopg.Connection[Any], by: str, name: str) -> None:
    """Let the line of a lock be as if all in it had begun so much earlier."""
    db.execute("UPDATE pgsched.lock_places SET since = since - %s::interval, granted_at = granted_at - %s::interval"
               " WHERE lock = %s", [by, by, name])  # fmt: skip
