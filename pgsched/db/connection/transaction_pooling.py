"""Connections through a pooler that lends a session for one transaction at a time.

Invariant: our settings never stay in a session, and code never expects them there. Each transaction begins with our
settings, which end with it. A statement outside a transaction gets its own transaction, sent in one round trip.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, Error, IsolationLevel, pq, sql
from psycopg.rows import tuple_row

from pgsched.db.connection import sealed
from pgsched.db.connection.bounded import AsyncPatientConnection, PatientConnection

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
BEGIN_WRITING = BEGIN + " READ WRITE"  # a standby refuses it
COMMIT = "COMMIT"


def set_settings_statement(settings: Mapping[str, str], *, local: bool) -> sql.Composed:
    """Return the statement that sets these settings, until the end of the transaction (`local`) or of the session."""
    # Leave out what has no meaning within one transaction, or is set by BEGIN.
    given = {name: value for name, value in settings.items() if not (local and name in sealed.SESSIONS)}
    one = sql.SQL("pg_catalog.set_config({}, {}, {})")  # qualified, because the session is not sealed yet
    return sql.SQL("SELECT ") + sql.SQL(", ").join(one.format(name, value, local) for name, value in given.items())


class SharedCursor(Cursor[Any]):
    """A cursor that sends a statement outside a transaction as a transaction of its own."""

    def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        """Execute a statement, in its own transaction where none is open."""
        conn = self.connection
        assert isinstance(conn, SharedConnection)
        if not conn.is_outside_transaction():
            return super().execute(query, params, **more)
        with conn.in_one_round_trip():
            return super().execute(query, params, **more)


class SharedConnection(PatientConnection):
    """A blocking connection whose pooler lends a session for one transaction at a time.

    `settings`: the statement that begins each transaction.
    `in_block`: a block of `in_one_round_trip` or `transaction` is open.
    """

    settings: sql.Composed
    in_block = False

    def is_outside_transaction(self) -> bool:
        """Check whether a statement sent now would be a transaction of its own."""
        idle = self.info.transaction_status == pq.TransactionStatus.IDLE
        return idle and self.autocommit and not self.in_block

    def begin(self) -> None:
        """Open a transaction that the caller ends with COMMIT or ROLLBACK."""
        plain(self).execute(BEGIN if self.read_only is None else BEGIN_WRITING)
        plain(self).execute(self.settings)

    @contextmanager
    def in_one_round_trip(self) -> Iterator[None]:
        """Wrap the statements of the block in a transaction, in one round trip."""
        self.in_block = True
        failed: Exception | None = None
        try:
            with self.pipeline():
                try:
                    self.begin()
                    yield
                    plain(self).execute(COMMIT)
                except Exception as error:  # leaving the pipeline with an error would log a second one
                    failed = error
        except Error as error:
            failed = failed or error
        except BaseException:  # interrupted: the state of the connection is unknown
            self.close()
            raise
        finally:
            self.in_block = False
        if failed is not None:
            if not self.closed:
                self.rollback()
            raise failed

    @contextmanager
    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Iterator[Any]:
        """Open a transaction with our settings, or a savepoint, as psycopg does."""
        outermost = self.is_outside_transaction()
        try:
            with super().transaction(savepoint_name, force_rollback) as transaction:
                if outermost:
                    self.in_block = True
                    plain(self).execute(self.settings)
                yield transaction
        finally:
            if outermost:
                self.in_block = False


class AsyncSharedCursor(AsyncCursor[Any]):
    """The asyncio form of `SharedCursor`."""

    async def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        """Execute a statement, in its own transaction where none is open."""
        conn = self.connection
        assert isinstance(conn, AsyncSharedConnection)
        if not conn.is_outside_transaction():
            return await super().execute(query, params, **more)
        async with conn.in_one_round_trip():
            return await super().execute(query, params, **more)


class AsyncSharedConnection(AsyncPatientConnection):
    """The asyncio form of `SharedConnection`."""

    settings: sql.Composed
    in_block = False

    def is_outside_transaction(self) -> bool:
        """Check whether a statement sent now would be a transaction of its own."""
        idle = self.info.transaction_status == pq.TransactionStatus.IDLE
        return idle and self.autocommit and not self.in_block

    async def begin(self) -> None:
        """Open a transaction that the caller ends with COMMIT or ROLLBACK."""
        await plain_async(self).execute(BEGIN if self.read_only is None else BEGIN_WRITING)
        await plain_async(self).execute(self.settings)

    @asynccontextmanager
    async def in_one_round_trip(self) -> AsyncIterator[None]:
        """Wrap the statements of the block in a transaction, in one round trip."""
        self.in_block = True
        failed: Exception | None = None
        try:
            async with self.pipeline():
                try:
                    await self.begin()
                    yield
                    await plain_async(self).execute(COMMIT)
                except Exception as error:  # leaving the pipeline with an error would log a second one
                    failed = error
        except Error as error:
            failed = failed or error
        except BaseException:  # interrupted: the state of the connection is unknown
            await self.close()
            raise
        finally:
            self.in_block = False
        if failed is not None:
            if not self.closed:
                await self.rollback()
            raise failed

    @asynccontextmanager
    async def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> AsyncIterator[Any]:
        """Open a transaction with our settings, or a savepoint, as psycopg does."""
        outermost = self.is_outside_transaction()
        try:
            async with super().transaction(savepoint_name, force_rollback) as transaction:
                if outermost:
                    self.in_block = True
                    await plain_async(self).execute(self.settings)
                yield transaction
        finally:
            if outermost:
                self.in_block = False


class KeptConnection(PatientConnection):
    """A blocking connection through a pooler that keeps one session for it: as good as a direct connection.

    RESET ALL removes its settings. `settings`: the statement that sets them again.
    """

    settings: sql.Composed


class AsyncKeptConnection(AsyncPatientConnection):
    """The asyncio form of `KeptConnection`."""

    settings: sql.Composed


def plain(conn: Connection[Any]) -> Cursor[Any]:
    """Return a cursor that sends statements unchanged."""
    return Cursor(conn, row_factory=tuple_row)


def plain_async(conn: AsyncConnection[Any]) -> AsyncCursor[Any]:
    """Return a cursor that sends statements unchanged: the asyncio form of `plain`."""
    return AsyncCursor(conn, row_factory=tuple_row)


def cursor_on(conn: Connection[Any], row_factory: Any) -> Cursor[Any]:
    """Return a cursor with these rows, whatever kind of cursor the application's own connection makes by default."""
    return (SharedCursor if isinstance(conn, SharedConnection) else Cursor)(conn, row_factory=row_factory)


def cursor_on_async(conn: AsyncConnection[Any], row_factory: Any) -> AsyncCursor[Any]:
    """Return a cursor with these rows: the asyncio form of `cursor_on`."""
    return (AsyncSharedCursor if isinstance(conn, AsyncSharedConnection) else AsyncCursor)(
        conn, row_factory=row_factory
    )


def is_shared(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Check whether each transaction on this connection gets another session."""
    return isinstance(conn, SharedConnection | AsyncSharedConnection)


def begin(conn: Connection[Any]) -> None:
    """Open a transaction that the caller ends, on a connection of any kind."""
    conn.begin() if isinstance(conn, SharedConnection) else conn.execute("BEGIN")


async def begin_async(conn: AsyncConnection[Any]) -> None:
    """Open a transaction that the caller ends: the asyncio form of `begin`."""
    await (conn.begin() if isinstance(conn, AsyncSharedConnection) else conn.execute("BEGIN"))


def prepare_shared_connection(conn: Any, settings: Mapping[str, str]) -> None:
    """Prepare a new shared connection: its cursors, its loaders, and the settings of its transactions."""
    conn.settings = set_settings_statement(settings, local=True)
    conn.cursor_factory = SharedCursor if isinstance(conn, Connection) else AsyncSharedCursor
    sealed.read_our_styles(conn)


READ_COMMITTED = IsolationLevel.READ_COMMITTED
