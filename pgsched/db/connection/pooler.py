"""Detect a pooler between this process and the server, and for how long it lends a session.

Invariant: unless a pooler is proved to keep the session, it is treated as a pooler that does not. That works with every
pooler.

The check runs at the first connection. Where sessions were found to be kept, it runs again from time to time, when the
process opens a new connection.
"""

from __future__ import annotations

import select
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import psycopg
from psycopg import Connection, pq, sql

from pgsched.db.connection.bounded import PatientConnection
from pgsched.db.connection.transaction_pooling import AsyncKeptConnection, KeptConnection, is_shared
from pgsched.errors import InputError

ROUNDS = 4
PATIENCE_S = 2.0
SESSION_HOLDS_S = 10.0
IS_PREPARED = "SELECT EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE name = %s)"
PROBE = b"SELECT 'pgsched probe'"


class Pooler(StrEnum):
    """The mode of a pooler: for how long it lends a session."""

    SESSION = "session"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class PoolerMode:
    """What is known about the way to a server.

    `prepares`: statements prepared by the protocol survive the end of a transaction.
    `until`: when to check again, on the monotonic clock.
    `read_only`: transactions are read-only by default.
    """

    pooler: Pooler
    prepares: bool
    until: float
    read_only: bool = False


def pooler_of(conn: Any) -> Pooler | None:
    """Return the pooler that this connection goes through; None if the server itself answers."""
    if isinstance(conn, KeptConnection | AsyncKeptConnection):
        return Pooler.SESSION
    return Pooler.TRANSACTION if is_shared(conn) else None


def refuses_settings(error: BaseException) -> bool:
    """Check whether this error may be a pooler's refusal of settings at the start of a session.

    Each pooler words the refusal differently, and libpq passes on no code. A wrong guess costs one more try without
    settings.
    """
    text = str(error).lower() if getattr(error, "sqlstate", None) is None else ""
    return "fatal" in text and ("startup parameter" in text or "option" in text or "not support" in text)


def detect_pooler(conninfo: str, before: PoolerMode | None = None) -> PoolerMode:
    """Detect the pooler's mode with two connections.

    `before`: the last result; it stays valid while the pooler has no free session. Raises InputError for a pooler that
        lends a session for one statement only.
    """
    with closing(PatientConnection.connect(conninfo, autocommit=True, prepare_threshold=None)) as one:
        home = session_of(one)
        with closing(PatientConnection.connect(conninfo, autocommit=True, prepare_threshold=None)) as two:
            if before is not None and before.pooler is Pooler.SESSION and soon(two) is None:
                return replace(before, until=time.monotonic() + SESSION_HOLDS_S)
            kept = all(keeps(one, two, home) for _ in range(ROUNDS)) and hears(one, two)
        pooler = Pooler.SESSION if kept else Pooler.TRANSACTION
        prepares = kept or (psycopg.capabilities.has_send_close_prepared() and renames(one))
        read_only = one.execute("SHOW default_transaction_read_only").fetchone() == ("on",)
    return PoolerMode(pooler, prepares, time.monotonic() + (SESSION_HOLDS_S if kept else float("inf")), read_only)


def session_of(conn: Connection[Any]) -> int:
    """Return the server process that answers a transaction. Raises InputError for a pooler in statement mode."""
    try:
        conn.execute("BEGIN")
        row = conn.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
        conn.execute("COMMIT")
    except psycopg.Error as error:
        if "statement pool" not in str(error):
            raise
        raise InputError(
            "dsn: the pooler is in statement mode, which has no transactions: use pool_mode = transaction or session,"
            " or a DSN that goes round it",
            "dsn",
        ) from None
    assert row is not None
    return int(row[0])


def keeps(one: Connection[Any], two: Connection[Any], home: int) -> bool:
    """Check whether `one` still has its first session, while `two` gets another one."""
    return soon(two) not in (home, None) and session_of(one) == home


def soon(conn: Connection[Any]) -> int | None:
    """Return the server process that answers within PATIENCE_S; None when no session is free."""
    until = time.monotonic() + PATIENCE_S
    conn.pgconn.send_query(b"SELECT pg_catalog.pg_backend_pid()")
    found = None
    while True:
        while conn.pgconn.is_busy():
            if not wait_readable(conn, until - time.monotonic()):
                return None
            conn.pgconn.consume_input()
        result = conn.pgconn.get_result()
        if result is None:
            return found
        if result.status == pq.ExecStatus.TUPLES_OK:
            found = int(result.get_value(0, 0) or 0)


def wait_readable(conn: Connection[Any], seconds: float) -> bool:
    """Check whether there is something to read within `seconds`."""
    look = select.poll()
    look.register(conn.fileno(), select.POLLIN)
    return bool(look.poll(max(0.0, seconds) * 1000))


def hears(one: Connection[Any], two: Connection[Any]) -> bool:
    """Check whether a notification reaches a listening connection."""
    with listening(one) as channel:
        try:
            two.execute("SELECT pg_catalog.pg_notify(%s, '')", [channel])
        except psycopg.errors.ProgramLimitExceeded:  # the server's queue is full, which proves nothing here
            return True
        return any(note.channel == channel for note in one.notifies(timeout=PATIENCE_S, stop_after=1))


@contextmanager
def listening(conn: Connection[Any]) -> Iterator[str]:
    """Listen on a channel with a random name during the block."""
    channel = f"pgsched_probe_{uuid.uuid4().hex}"
    conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    try:
        yield channel
    finally:
        conn.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)))


def renames(conn: Connection[Any]) -> bool:
    """Check whether the pooler tracks prepared statements: then it gives them names of its own."""
    name = f"pgsched_probe_{uuid.uuid4().hex}"
    with conn.transaction():
        conn.pgconn.prepare(name.encode(), PROBE)
        row = conn.execute(IS_PREPARED, [name]).fetchone()
        plain = row is None or row[0]
        if plain:
            conn.execute(sql.SQL("DEALLOCATE {}").format(sql.Identifier(name)))
    return not plain
