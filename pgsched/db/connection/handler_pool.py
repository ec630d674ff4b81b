"""Idle connections that handlers use in turn.

Invariant: each use begins with a session as good as new. One statement resets what the last handler left in the
session, and checks whether the connection still works.

A child process that was forked uses none of its parent's connections: both would read and write one socket. It does
not close them either, because that would end the parent's session.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row

from pgsched.db.connection.connect import aconnect, connect
from pgsched.db.connection.reuse import is_clean
from pgsched.db.connection.sealed import THEIRS
from pgsched.db.connection.transaction_pooling import AsyncKeptConnection, KeptConnection, is_shared

MOST_IDLE = 4
# DISCARD ALL without the prepared statements, which psycopg tracks.
RESET = (
    "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; "
    "SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"
)
STILL_THERE = "SELECT 1"  # through a pooler in transaction mode: the session is shared, so do not reset it
PURPOSE = "run"


class IdleConnections:
    """The idle connections of this process to one database. Thread-safe."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: list[Connection[Any]] = []
        self._idle_async: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncConnection[Any]]] = WeakKeyDictionary()

    @contextmanager
    def lend(self) -> Iterator[Connection[Any]]:
        """Lend a connection for the block."""
        process = os.getpid()
        conn = self._reset() or connect(self._dsn, purpose=PURPOSE, timeout_s=0, settings=THEIRS, encoding=None)
        try:
            yield conn
        finally:
            if process == os.getpid():
                with self._lock:
                    keep = is_clean(conn) and len(self._idle) < MOST_IDLE
                    if keep:
                        self._idle.append(conn)
                if not keep:
                    conn.close()

    @asynccontextmanager
    async def lend_async(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend an asyncio connection for the block: the asyncio form of `lend`."""
        process, idle = os.getpid(), self._of_loop()
        conn = await reset_async(idle) or await aconnect(
            self._dsn, purpose=PURPOSE, timeout_s=0, settings=THEIRS, encoding=None
        )
        try:
            yield conn
        finally:
            if process == os.getpid():
                if is_clean(conn) and len(idle) < MOST_IDLE:
                    idle.append(conn)
                else:
                    await conn.close()

    async def close(self) -> None:
        """Close idle connections: the blocking ones of all threads, and the asyncio ones of this event loop."""
        with self._lock:
            self._forget_parent()
            sync, self._idle = self._idle, []
        for conn in sync:
            conn.close()
        for other in self._idle_async.pop(asyncio.get_running_loop(), []):
            await other.close()

    def _reset(self) -> Connection[Any] | None:
        """Return an idle connection that still works, reset; None if there is none."""
        while True:
            with self._lock:
                self._forget_parent()
                conn = self._idle.pop() if self._idle else None
            if conn is None:
                return None
            try:
                conn.execute(STILL_THERE if is_shared(conn) else RESET)
                if isinstance(conn, KeptConnection):
                    conn.execute(conn.settings)
                conn.row_factory = tuple_row
                return conn
            except BaseException as error:
                conn.close()
                if not isinstance(error, psycopg.Error):
                    raise

    def _of_loop(self) -> list[AsyncConnection[Any]]:
        with self._lock:
            self._forget_parent()
            return self._idle_async.setdefault(asyncio.get_running_loop(), [])

    def _forget_parent(self) -> None:
        """Forget the idle connections of a parent process."""
        if self._pid != os.getpid():
            self._pid, self._idle, self._idle_async = os.getpid(), [], WeakKeyDictionary()


async def reset_async(idle: list[AsyncConnection[Any]]) -> AsyncConnection[Any] | None:
    """Return an idle connection that still works, reset; None if there is none."""
    while idle:
        conn = idle.pop()
        try:
            await conn.execute(STILL_THERE if is_shared(conn) else RESET)
            if isinstance(conn, AsyncKeptConnection):
                await conn.execute(conn.settings)
            conn.row_factory = tuple_row
            return conn
        except BaseException as error:
            await conn.close()
            if not isinstance(error, psycopg.Error):
                raise
    return None


_known: dict[str, IdleConnections] = {}


def idle(dsn: str) -> IdleConnections:
    """Return this process's idle connections to a database."""
    return _known.setdefault(dsn, IdleConnections(dsn))
