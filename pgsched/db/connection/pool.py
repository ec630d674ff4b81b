"""A pool of blocking connections, for the console.

Invariant: a connection that is handed out works, and a connection left in a transaction is not reused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore, Lock
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from pgsched.db.connection.connect import Connection, connect
from pgsched.errors import DatabaseUnreachable

TRUSTED_S = 2.0  # a connection that was idle longer is checked before use


class Pool:
    """Up to `size` blocking connections, opened when they are needed. Thread-safe."""

    def __init__(
        self, dsn: str, *, size: int, purpose: str, timeout_s: float, settings: dict[str, str] | None = None
    ) -> None:
        self._open: Callable[[], Connection[Any]] = partial(
            connect, dsn, purpose=purpose, timeout_s=timeout_s, settings=settings
        )
        self._patience_s = timeout_s
        self._places = BoundedSemaphore(size)
        self._lock = Lock()
        self._idle: list[tuple[float, Connection[Any]]] = []

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """Lend a connection for one use.

        Raises DatabaseUnreachable, also when all connections are in use for too long.
        """
        if not self._places.acquire(timeout=self._patience_s):
            raise DatabaseUnreachable("all database connections of this process are in use: try again")
        try:
            conn = self._take()
            try:
                yield conn
            finally:
                self._give_back(conn)
        finally:
            self._places.release()

    def _take(self) -> Connection[Any]:
        """Return an idle connection that works, or a new one."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                since, conn = self._idle.pop()
            if time.monotonic() - since < TRUSTED_S or is_answering(conn):
                return conn
            conn.close()
        return self._open()

    def _give_back(self, conn: Connection[Any]) -> None:
        """Keep a connection for the next use, unless it is closed or in a transaction."""
        if conn.closed:  # the cause has probably ended the other connections as well
            return self.close()
        if conn.info.transaction_status != TransactionStatus.IDLE:
            return conn.close()
        with self._lock:
            self._idle.append((time.monotonic(), conn))
        return None

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            while self._idle:
                self._idle.pop()[1].close()


def is_answering(conn: Connection[Any]) -> bool:
    """Check whether the server still answers on this connection."""
    try:
        conn.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True
