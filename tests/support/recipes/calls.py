"""Calls of the SQL functions of locks, as a program in another language makes them; and functions without a guard."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg

Db = psycopg.Connection[Any]


class Answer(NamedTuple):
    """What `lock_acquire` returns."""

    fence: int | None
    place: int | None
    lease_until: Any
    look_at: Any


def acquire(db: Db, name: str = "a", token: UUID | None = None, **more: Any) -> Answer:
    """Call `lock_acquire` with these arguments."""
    given = {"name": name, "token": token or uuid4()} | more
    named = ", ".join(f"{key} => %({key})s" for key in given)
    row = db.execute(f"SELECT * FROM pgsched.lock_acquire({named})".encode(), given).fetchone()
    assert row is not None
    return Answer(*row)


def granted(db: Db, name: str = "a", token: UUID | None = None, **more: Any) -> int:
    """Acquire without a wait; return the fence, which there has to be."""
    fence = acquire(db, name, token, **more).fence
    assert fence is not None
    return fence


def release(db: Db, token: UUID, name: str = "a") -> bool:
    """Call `lock_release`."""
    return bool(value(db, "SELECT pgsched.lock_release(%s, %s)", name, token))


def session(db: Db, ttl: str = "30 s", name: str | None = None) -> UUID:
    """Open a session; return its token."""
    token = uuid4()
    db.execute("SELECT pgsched.session_open(%s, %s, %s)", [token, ttl, name])
    return token


def value(db: Db, statement: str, *params: Any) -> Any:
    """Return the only value of a statement."""
    row = db.execute(statement.encode(), params or None).fetchone()
    return None if row is None else row[0]


def refused(db: Db, statement: str, *params: Any) -> str:
    """Return the sqlstate with which a statement is refused."""
    try:
        with db.transaction():
            db.execute(statement.encode(), params)
    except psycopg.Error as error:
        return error.sqlstate or ""
    return "not refused"


def function_without(db: Db, name: str, guard: str, instead: str = "") -> None:
    """Put a function of the schema in place in which a guard is cut out; fail if the guard is not there once."""
    (text,) = db.execute(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace AND proname = %s",
        [name],
    ).fetchone() or ("",)
    found = len(re.findall(re.escape(guard), text))
    assert found == 1, f"{name} has {guard!r} {found} times"
    db.execute(text.replace(guard, instead).encode())
