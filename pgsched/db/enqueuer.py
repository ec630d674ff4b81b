"""Enqueue runs on the caller's connection, or on a connection of this module: one per thread and one per event loop.

The module's connection is opened at the first use. Before each use it is checked whether the server has closed it, so a
restart of the server between two enqueues is not noticed. A connection that breaks during a statement is reported as an
error, because it is unknown whether the run was made.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from psycopg import pq

from pgsched.adapters.django import django_driver_connection
from pgsched.adapters.sqlalchemy import psycopg_connection, psycopg_connection_async
from pgsched.core.model import FirstResult, RunId
from pgsched.db.connection.connect import AsyncConnection, Connection, DatabaseError, aconnect, connect
from pgsched.db.connection.failures import QUEUE_FULL, WRONG_FLEET, explain_error
from pgsched.db.queries.runs import enqueue as statements
from pgsched.db.queries.runs.queue_room import retry_while_full, seconds_to_wait, when_there_is_room_async
from pgsched.errors import DatabaseUnreachable, PgschedError
from pgsched.threads import run_in_thread

T = TypeVar("T")


class PerLoop:
    """The connection of one event loop, and the lock under which it is opened and used."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.conn: AsyncConnection[Any] | None = None


class Enqueuer:
    """Enqueues runs on the caller's connection, or on one of its own.

    `find_dsn`: returns the DSN to use; None: the embedded server.
    """

    def __init__(self, find_dsn: Callable[[], str | None]) -> None:
        self._find_dsn = find_dsn
        self._embedded: Any = None
        self._embedded_lock = threading.Lock()
        self._thread = threading.local()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, PerLoop] = WeakKeyDictionary()

    def enqueue(self, conn: Any, values: dict[str, Any]) -> RunId:
        """Enqueue one run, and return its id."""
        return retry_while_full(
            lambda: self.send(conn, lambda mine: statements.enqueue(mine, **values)), seconds_to_wait(conn, values)
        )

    def enqueue_many(self, conn: Any, args: statements.Texts, values: dict[str, Any]) -> int:
        """Enqueue one run for each of `args`, and return how many were made."""
        return retry_while_full(
            lambda: self.send(conn, lambda mine: statements.enqueue_many(mine, args, values)),
            seconds_to_wait(conn, values),
        )

    async def enqueue_async(self, conn: Any, values: dict[str, Any]) -> RunId:
        """Enqueue one run: the asyncio form of `enqueue`."""
        return await when_there_is_room_async(
            lambda: self.send_async(conn, lambda mine: statements.enqueue_async(mine, **values)),
            seconds_to_wait(conn, values),
        )

    async def enqueue_many_async(self, conn: Any, args: statements.Texts, values: dict[str, Any]) -> int:
        """Enqueue many runs: the asyncio form of `enqueue_many`."""
        return await when_there_is_room_async(
            lambda: self.send_async(conn, lambda mine: statements.enqueue_many_async(mine, args, values)),
            seconds_to_wait(conn, values),
        )

    def first_result(self, key: str) -> FirstResult | None:
        """Return state and result of the run that an idempotency key stands for; None if there is none."""
        return self.send(None, lambda mine: statements.first_result(mine, key))

    async def first_result_async(self, key: str) -> FirstResult | None:
        """Return the run of an idempotency key: the asyncio form of `first_result`."""
        return await self.send_async(None, lambda mine: statements.first_result_async(mine, key))

    def send(self, conn: Any, send: Callable[[Any], T]) -> T:
        """Call `send` with the caller's connection, or with our own, and return its result."""
        if conn is not None:
            try:
                return send(
                    conn if isinstance(conn, Connection) else psycopg_connection(django_driver_connection(conn))
                )
            except DatabaseError as error:
                raise error_on_own_connection(error) from error
        try:
            return send(self._connection())
        except DatabaseError as error:
            raise error_on_our_connection(error) from error

    async def send_async(self, conn: Any, send: Callable[[Any], Awaitable[T]]) -> T:
        """Call the coroutine function `send` with a connection: the asyncio form of the method `send`."""
        if conn is not None:
            try:
                return await send(conn if isinstance(conn, AsyncConnection) else await psycopg_connection_async(conn))
            except DatabaseError as error:
                raise error_on_own_connection(error) from error
        per_loop = self._loops.setdefault(asyncio.get_running_loop(), PerLoop())
        try:
            async with per_loop.lock:
                return await send(await self._connection_async(per_loop))
        except DatabaseError as error:
            raise error_on_our_connection(error) from error

    def close(self) -> None:
        """Close this thread's connection."""
        owned = getattr(self._thread, "owned", None)
        self._thread.owned = None
        if owned is not None and owned[0] == os.getpid():
            owned[1].close()

    async def close_async(self) -> None:
        """Close this event loop's connection."""
        per_loop = self._loops.pop(asyncio.get_running_loop(), None)
        if per_loop is not None and per_loop.conn is not None:
            await per_loop.conn.close()

    def _connection(self) -> Connection[Any]:
        """Return this thread's connection, reopened if it no longer works."""
        pid, conn = getattr(self._thread, "owned", None) or (0, None)
        # After a fork, parent and child would use the same socket.
        if conn is None or pid != os.getpid() or not is_alive(conn):
            self.close()
            conn = connect(self.dsn(), purpose="enqueue")
            self._thread.owned = (os.getpid(), conn)
        return conn

    async def _connection_async(self, per_loop: PerLoop) -> AsyncConnection[Any]:
        """Return this event loop's connection, reopened if it no longer works."""
        if per_loop.conn is None or not is_alive(per_loop.conn):
            if per_loop.conn is not None:
                await per_loop.conn.close()
            dsn = await run_in_thread(self.dsn)
            per_loop.conn = await aconnect(dsn, purpose="enqueue")
        return per_loop.conn

    def dsn(self) -> str:
        """Return the DSN for enqueues without a caller's connection; start the embedded server if needed."""
        if (dsn := self._find_dsn()) is not None:
            return dsn
        from pgsched.db.embedded.server import acquire

        with self._embedded_lock:
            if self._embedded is None:
                self._embedded = acquire()
            return str(self._embedded.dsn)


def is_alive(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Check that the server has not closed an idle connection, and that it is outside a transaction.

    An idle connection has something to read only if the server closes it (or sends a notice). The check sends nothing,
    so a repeated enqueue can never make a second run.
    """
    if conn.closed or conn.broken or conn.pgconn.transaction_status != pq.TransactionStatus.IDLE:
        return False
    look = select.poll()
    look.register(conn.pgconn.socket, select.POLLIN)
    if not look.poll(0):
        return True
    try:
        conn.pgconn.consume_input()
    except DatabaseError:
        return False
    return not look.poll(0)


def error_on_own_connection(error: DatabaseError) -> Exception:
    """Return the error for a caller that passed its own connection.

    pgsched's refusals get pgsched's error. Failures of the connection or the transaction stay the driver's errors.
    """
    ours = error.sqlstate in ("23514", QUEUE_FULL) and error.diag.schema_name == "pgsched"
    return explain_error(error) if ours or error.sqlstate == WRONG_FLEET else error


def error_on_our_connection(error: DatabaseError) -> PgschedError:
    """Return the error for the caller; where the run may have been made all the same, its text says so."""
    explained = explain_error(error)
    if isinstance(explained, DatabaseUnreachable):
        return DatabaseUnreachable(
            f"{explained}; the run may have been made: with an idempotency_key it is safe to repeat"
        )
    return explained
