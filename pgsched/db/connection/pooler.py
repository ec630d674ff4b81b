"""Is there a pooler between us and the server, and for how long does it lend a session?

The rule: what is not proved to keep the session is taken for something that does not: that way works everywhere. The
answer is asked for at the first connection, and again when a process that believes in sessions connects anew.
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
    """What lends sessions, by how long."""

    SESSION = "session"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the way to a server. `prepares`: statements prepared by the protocol survive a transaction;
    `read_only`: transactions are read-only unless they say otherwise."""

    pooler: Pooler
    prepares: bool
    until: float  # monotonic
    read_only: bool = False


def of(conn: Any) -> Pooler | None:
    """The pooler that this connection goes through, None if it is the server that answers."""
    if isinstance(conn, KeptConnection | AsyncKeptConnection):
        return Pooler.SESSION
    return Pooler.TRANSACTION if is_shared(conn) else None


def refuses_settings(error: BaseException) -> bool:
    """May it be the refusal of a pooler that takes no settings at the start? Each has words of its own for it, and
    libpq tells no code. It costs one more try, without settings, to take another failure for one."""
    text = str(error).lower() if getattr(error, "sqlstate", None) is None else ""
    return "fatal" in text and ("startup parameter" in text or "option" in text or "not support" in text)


def learn(conninfo: str, before: Known | None = None) -> Known:
    """Find out with two connections of its own; `before`: what was found the last time, which holds on while the pooler
    has no session to spare. Raises InputError for one that lends a session for a statement only."""
    with closing(PatientConnection.connect(conninfo, autocommit=True, prepare_threshold=None)) as one:
        home = session_of(one)
        with closing(PatientConnection.connect(conninfo, autocommit=True, prepare_threshold=None)) as two:
            if before is not None and before.pooler is Pooler.SESSION and soon(two) is None:
                return replace(before, until=time.monotonic() + SESSION_HOLDS_S)
            kept = all(keeps(one, two, home) for _ in range(ROUNDS)) and hears(one, two)
        pooler = Pooler.SESSION if kept else Pooler.TRANSACTION
        prepares = kept or (psycopg.capabilities.has_send_close_prepared() and renames(one))
        read_only = one.execute("SHOW default_transaction_read_only").fetchone() == ("on",)
    return Known(pooler, prepares, time.monotonic() + (SESSION_HOLDS_S if kept else float("inf")), read_only)


def session_of(conn: Connection[Any]) -> int:
    """The process of the server that answers a transaction."""
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
    """Has `one` still the session that it had, and did `two` get another one?"""
    return soon(two) not in (home, None) and session_of(one) == home


def soon(conn: Connection[Any]) -> int | None:
    """The process that answers; None when none is free."""
    until = time.monotonic() + PATIENCE_S
    conn.pgconn.send_query(b"SELECT pg_catalog.pg_backend_pid()")
    found = None
    while True:
        while conn.pgconn.is_busy():
            if not readable(conn, until - time.monotonic()):
                return None
            conn.pgconn.consume_input()
        result = conn.pgconn.get_result()
        if result is None:
            return found
        if result.status == pq.ExecStatus.TUPLES_OK:
            found = int(result.get_value(0, 0) or 0)


def readable(conn: Connection[Any], seconds: float) -> bool:
    """Is there something to read within so many seconds?"""
    look = select.poll()
    look.register(conn.fileno(), select.POLLIN)
    return bool(look.poll(max(0.0, seconds) * 1000))


def hears(one: Connection[Any], two: Connection[Any]) -> bool:
    """Does a notification reach who listens for it?"""
    with listening(one) as channel:
        try:
            two.execute("SELECT pg_catalog.pg_notify(%s, '')", [channel])
        except psycopg.errors.ProgramLimitExceeded:  # the server's queue is full: that is another trouble
            return True
        return any(note.channel == channel for note in one.notifies(timeout=PATIENCE_S, stop_after=1))


@contextmanager
def listening(conn: Connection[Any]) -> Iterator[str]:
    """Listen on a channel of nobody else's."""
    channel = f"pgsched_probe_{uuid.uuid4().hex}"
    conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    try:
        yield channel
    finally:
        conn.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)))


def renames(conn: Connection[Any]) -> bool:
    """Does the pooler keep count of prepared statements? One that does gives them names of its own."""
    name = f"pgsched_probe_{uuid.uuid4().hex}"
    with conn.transaction():
        conn.pgconn.prepare(name.encode(), PROBE)
        row = conn.execute(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE name = %s)", [name]
        ).fetchone()
        plain = row is None or row[0]
        if plain:
            conn.execute(sql.SQL("DEALLOCATE {}").format(sql.Identifier(name)))
    return not plain
