"""Enqueue runs on the caller's connection, or on a connection of the App: threads share a few, and so do asyncio tasks.

The App's connections are opened when they are needed. Before each use it is checked whether the server has closed the
connection, so a restart of the server between two enqueues is not noticed. A connection that breaks during a statement
is reported as an error, because it is unknown whether the run was made. The error says what the call may have done.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

from pgsched.config import allows_embedded, no_dsn_error
from pgsched.core.model import FirstResult, RunId
from pgsched.db.callers.calls import call_on, call_on_async, send_on, send_on_async
from pgsched.db.callers.foreign import ForeignError
from pgsched.db.connection.connect import AsyncConnection, Connection, DatabaseError, aconnect, connect
from pgsched.db.connection.failures import DEADLOCK_DETECTED, QUEUE_FULL, WRONG_FLEET, explain_error
from pgsched.db.connection.loop_pools import LoopPools
from pgsched.db.connection.shared_pool import SharedPool
from pgsched.db.queries.runs import enqueue as statements
from pgsched.db.queries.runs.queue_room import retry_while_full, seconds_to_wait, when_there_is_room_async
from pgsched.errors import RUN_MADE, DatabaseUnreachable, LockTimeout
from pgsched.threads import run_in_thread

T = TypeVar("T")

POOL_SIZE = 4
DEADLOCK_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # the longest pause before each repetition


class Enqueuer:
    """Enqueues runs on the caller's connection, or on one of its own.

    `find_dsn`: returns the DSN to use; None where nothing names a database.
    `embedded`: the embedded server may be used then, as it may be with PGSCHED_EMBEDDED=1.
    `pool_size`: how many connections all threads share, and how many the tasks of one event loop.
    `records`: False; a recorder of the test kit, which stands in this place in tests, has True.
    """

    records = False

    def __init__(
        self, find_dsn: Callable[[], str | None], *, embedded: bool = False, pool_size: int = POOL_SIZE
    ) -> None:
        self._find_dsn = find_dsn
        self._allows_embedded = embedded
        self._embedded: Any = None
        self._embedded_lock = threading.Lock()
        self._threads = SharedPool(self._connect, pool_size)
        self._loops = LoopPools(self._connect_async, pool_size)

    def enqueue(self, conn: Any, values: dict[str, Any]) -> RunId:
        """Enqueue one run, and return its id."""
        return retry_while_full(
            lambda: self.send(conn, lambda mine: statements.enqueue(mine, **values), maybe=RUN_MADE),
            seconds_to_wait(conn, values),
        )

    def enqueue_many(self, conn: Any, args: statements.Texts, values: dict[str, Any]) -> int:
        """Enqueue one run for each of `args`, and return how many were made."""
        return retry_while_full(
            lambda: self.send(conn, lambda mine: statements.enqueue_many(mine, args, values), maybe=RUN_MADE),
            seconds_to_wait(conn, values),
        )

    async def enqueue_async(self, conn: Any, values: dict[str, Any]) -> RunId:
        """Enqueue one run: the asyncio form of `enqueue`."""
        return await when_there_is_room_async(
            lambda: self.send_async(
                conn,
                lambda mine: statements.enqueue_async(mine, **values),
                lambda mine: statements.enqueue(mine, **values),
                maybe=RUN_MADE,
            ),
            seconds_to_wait(conn, values),
        )

    async def enqueue_many_async(self, conn: Any, args: statements.Texts, values: dict[str, Any]) -> int:
        """Enqueue many runs: the asyncio form of `enqueue_many`."""
        return await when_there_is_room_async(
            lambda: self.send_async(
                conn,
                lambda mine: statements.enqueue_many_async(mine, args, values),
                lambda mine: statements.enqueue_many(mine, args, values),
                maybe=RUN_MADE,
            ),
            seconds_to_wait(conn, values),
        )

    def enqueue_many_ids(self, conn: Any, args: statements.Texts, values: dict[str, Any]) -> list[RunId]:
        """Enqueue one run for each of `args`, or find the one that has its key; return their ids in that order."""
        return retry_while_full(
            lambda: retry_deadlocks(
                lambda: self.send(conn, lambda mine: statements.enqueue_many_ids(mine, args, values), maybe=RUN_MADE),
                conn is None,
            ),
            seconds_to_wait(conn, values),
        )

    async def enqueue_many_ids_async(self, conn: Any, args: statements.Texts, values: dict[str, Any]) -> list[RunId]:
        """Enqueue many runs: the asyncio form of `enqueue_many_ids`."""
        return await when_there_is_room_async(
            lambda: retry_deadlocks_async(
                lambda: self.send_async(
                    conn,
                    lambda mine: statements.enqueue_many_ids_async(mine, args, values),
                    lambda mine: statements.enqueue_many_ids(mine, args, values),
                    maybe=RUN_MADE,
                ),
                conn is None,
            ),
            seconds_to_wait(conn, values),
        )

    def first_result(self, key: str) -> FirstResult | None:
        """Return state and result of the run that an idempotency key stands for; None if there is none."""
        return self.send(None, lambda mine: statements.first_result(mine, key))

    async def first_result_async(self, key: str) -> FirstResult | None:
        """Return the run of an idempotency key: the asyncio form of `first_result`."""
        return await self.send_async(None, lambda mine: statements.first_result_async(mine, key))

    def send(self, conn: Any, send: Callable[[Any], T], *, maybe: str | None = None) -> T:
        """Call `send` with the caller's connection, or with our own, and return its result.

        `maybe`: what may have been done where the answer is lost. The text of DatabaseUnreachable ends with it.
        """
        if conn is not None:
            try:
                return send(conn) if isinstance(conn, Connection) else send_on(conn, send)
            except DatabaseError as error:
                raise error_on_own_connection(error) from error
        begun = Begun(maybe)
        with begun:
            return self._threads.use(lambda mine: send(begun.on(mine)))

    async def send_async(
        self,
        conn: Any,
        send: Callable[[Any], Awaitable[T]],
        use_case: Callable[[Any], T] | None = None,
        *,
        maybe: str | None = None,
    ) -> T:
        """Call the coroutine function `send` with a connection: the asyncio form of the method `send`.

        `use_case`: called instead, in a thread, for a connection of a driver other than psycopg.
        """
        if conn is not None:
            try:
                return await (send(conn) if isinstance(conn, AsyncConnection) else send_on_async(conn, send, use_case))
            except DatabaseError as error:
                raise error_on_own_connection(error) from error
        begun = Begun(maybe)
        with begun:
            return await self._loops.use(lambda mine: send(begun.on(mine)))

    def call(self, connection: Any, use_case: Callable[[Any], T], *, maybe: str | None = None) -> T:
        """Call a use case with the caller's connection, in its transaction, or with our own; `maybe`: as for `send`."""
        return self.send(None, use_case, maybe=maybe) if connection is None else call_on(connection, use_case)

    async def call_async(self, connection: Any, use_case: Callable[[Any], T], *, maybe: str | None = None) -> T:
        """Call a use case in a thread: the asyncio form of `call`.

        There are no more threads than connections. Calls on callers' connections have their own: one of them may hold
        a lock for which others wait.
        """
        if connection is None:
            return await self._threads.run_in_thread(lambda: self.send(None, use_case, maybe=maybe))
        return await call_on_async(connection, use_case)

    def close(self) -> None:
        """Close the connections of all threads, of the running event loop, and of loops that do not run.

        A later use opens new ones.

        Connections in use are closed when their call ends.
        """
        self._threads.close()
        self._loops.close()

    async def close_async(self) -> None:
        """Close the same connections as `close`."""
        self.close()

    def dsn(self) -> str:
        """Return the DSN for enqueues without a caller's connection; start the embedded server where that is allowed.

        Raises DatabaseUnreachable where nothing names a database, and the embedded server is not allowed.
        """
        if (dsn := self._find_dsn()) is not None:
            return dsn
        if not (self._allows_embedded or allows_embedded()):
            raise no_dsn_error()
        from pgsched.db.embedded.server import acquire
        from pgsched.db.schema import migrate

        with self._embedded_lock:
            if self._embedded is None:
                server = acquire()
                migrate.upgrade(server.dsn)
                self._embedded = server
            return str(self._embedded.dsn)

    def _connect(self) -> Connection[Any]:
        return connect(self.dsn(), purpose="enqueue")

    async def _connect_async(self) -> AsyncConnection[Any]:
        return await aconnect(await run_in_thread(self.dsn), purpose="enqueue")


def retry_deadlocks(send: Callable[[], T], ours: bool) -> T:
    """Return what `send` returns, called again where its transaction was ended because of a deadlock: nothing was made.

    Calls that make runs with the same unique keys in different orders wait for each other. The pause before each
    repetition is random, so that they do not meet again.

    `ours`: False: the transaction is the caller's, and the caller has to repeat it

    Raises LockTimeout where the last repetition ends so, too.
    """
    for longest in DEADLOCK_PAUSES_S if ours else ():
        try:
            return send()
        except LockTimeout as error:
            raise_unless_deadlock(error)
        time.sleep(random.uniform(0, longest))
    return send()


async def retry_deadlocks_async(send: Callable[[], Awaitable[T]], ours: bool) -> T:
    """Do what `retry_deadlocks` does, for asyncio."""
    for longest in DEADLOCK_PAUSES_S if ours else ():
        try:
            return await send()
        except LockTimeout as error:
            raise_unless_deadlock(error)
        await asyncio.sleep(random.uniform(0, longest))
    return await send()


def raise_unless_deadlock(error: LockTimeout) -> None:
    """Raise the error unless its cause is a deadlock."""
    if getattr(error.__cause__, "sqlstate", None) != DEADLOCK_DETECTED:
        raise error


def error_on_own_connection(error: DatabaseError) -> Exception:
    """Return the error for a caller that passed its own connection.

    pgsched's refusals get pgsched's error. Failures of the connection or the transaction stay the driver's errors.
    """
    original = error.__cause__ if isinstance(error, ForeignError) else None
    ours = error.sqlstate in ("23514", QUEUE_FULL) and error.diag.schema_name == "pgsched"
    if ours or error.sqlstate == WRONG_FLEET:
        return explain_error(error)
    return original if isinstance(original, Exception) else error


class Begun:
    """A block that sends something on a connection of ours. Errors of the driver are raised as pgsched's.

    `maybe`: what may have been done where the answer is lost. Where there was no connection, nothing was done.
    """

    def __init__(self, maybe: str | None) -> None:
        self._maybe = maybe
        self._begun = False

    def on(self, conn: Any) -> Any:
        """Note that something is sent on this connection, and return it."""
        self._begun = True
        return conn

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Raise the error that a caller gets."""
        if not isinstance(error, DatabaseError | DatabaseUnreachable):
            return
        explained = explain_error(error) if isinstance(error, DatabaseError) else error
        if self._begun and self._maybe is not None and isinstance(explained, DatabaseUnreachable):
            explained = DatabaseUnreachable(f"{explained}; {self._maybe}")
        if explained is not error:
            raise explained from error
