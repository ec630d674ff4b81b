"""Connections through a pooler that lends a session for one transaction at a time.

The rule: nothing of ours stays in a session, and nothing is expected to be there. Each transaction begins with our
settings, which end with it; a statement outside of one gets a transaction of its own, sent in one go.
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


def assigning(settings: Mapping[str, str], *, local: bool) -> sql.Composed:
    """The statement that gives these settings, until the transaction's end or the session's."""
    # what has no meaning within one transaction, or is said when it begins
    given = {name: value for name, value in settings.items() if not (local and name in sealed.SESSIONS)}
    one = sql.SQL("pg_catalog.set_config({}, {}, {})")  # the session is not sealed yet
    return sql.SQL("SELECT ") + sql.SQL(", ").join(one.format(name, value, local) for name, value in given.items())


class SharedCursor(Cursor[Any]):
    """Sends a statement that stands alone as a transaction."""

    def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        conn = self.connection
        assert isinstance(conn, SharedConnection)
        if not conn.outside():
            return super().execute(query, params, **more)
        with conn.whole():
            return super().execute(query, params, **more)


class SharedConnection(PatientConnection):
    """A blocking connection of this kind; `settings` is the statement that begins each transaction."""

    settings: sql.Composed
    inside = False

    def outside(self) -> bool:
        """Would a statement sent now be a transaction of its own?"""
        idle = self.info.transaction_status == pq.TransactionStatus.IDLE
        return idle and self.autocommit and not self.inside

    def begin(self) -> None:
        """Open a transaction that ends with a COMMIT or ROLLBACK of the caller's."""
        plain(self).execute(BEGIN if self.read_only is None else BEGIN_WRITING)
        plain(self).execute(self.settings)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A transaction around what is sent within, there and back once."""
        self.inside = True
        failed: Exception | None = None
        try:
            with self.pipeline():
                try:
                    self.begin()
                    yield
                    plain(self).execute(COMMIT)
                except Exception as error:  # not through the pipeline's end, which would log what it says of it
                    failed = error
        except Error as error:
            failed = failed or error
        except BaseException:  # cut off: nobody knows in which state
            self.close()
            raise
        finally:
            self.inside = False
        if failed is not None:
            if not self.closed:
                self.rollback()
            raise failed

    @contextmanager
    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Iterator[Any]:
        outermost = self.outside()
        try:
            with super().transaction(savepoint_name, force_rollback) as made:
                if outermost:
                    self.inside = True
                    plain(self).execute(self.settings)
                yield made
        finally:
            if outermost:
                self.inside = False


class AsyncSharedCursor(AsyncCursor[Any]):
    """The asyncio form of `SharedCursor`."""

    async def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        conn = self.connection
        assert isinstance(conn, AsyncSharedConnection)
        if not conn.outside():
            return await super().execute(query, params, **more)
        async with conn.whole():
            return await super().execute(query, params, **more)


class AsyncSharedConnection(AsyncPatientConnection):
    """The asyncio form of `SharedConnection`."""

    settings: sql.Composed
    inside = False

    def outside(self) -> bool:
        """Would a statement sent now be a transaction of its own?"""
        idle = self.info.transaction_status == pq.TransactionStatus.IDLE
        return idle and self.autocommit and not self.inside

    async def begin(self) -> None:
        """Open a transaction that ends with a COMMIT or ROLLBACK of the caller's."""
        await plain_async(self).execute(BEGIN if self.read_only is None else BEGIN_WRITING)
        await plain_async(self).execute(self.settings)

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[None]:
        """A transaction around what is sent within, there and back once."""
        self.inside = True
        failed: Exception | None = None
        try:
            async with self.pipeline():
                try:
                    await self.begin()
                    yield
                    await plain_async(self).execute(COMMIT)
                except Exception as error:  # not through the pipeline's end, which would log what it says of it
                    failed = error
        except Error as error:
            failed = failed or error
        except BaseException:  # cut off: nobody knows in which state
            await self.close()
            raise
        finally:
            self.inside = False
        if failed is not None:
            if not self.closed:
                await self.rollback()
            raise failed

    @asynccontextmanager
    async def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> AsyncIterator[Any]:
        outermost = self.outside()
        try:
            async with super().transaction(savepoint_name, force_rollback) as made:
                if outermost:
                    self.inside = True
                    await plain_async(self).execute(self.settings)
                yield made
        finally:
            if outermost:
                self.inside = False


class KeptConnection(PatientConnection):
    """A blocking connection through a pooler that keeps one session for it: as good as a direct one, but that RESET ALL
    takes its settings away; `settings` is the statement that gives them again."""

    settings: sql.Composed


class AsyncKeptConnection(AsyncPatientConnection):
    """The asyncio form of `KeptConnection`."""

    settings: sql.Composed


def plain(conn: Connection[Any]) -> Cursor[Any]:
    """A cursor that sends what it is given and no more."""
    return Cursor(conn, row_factory=tuple_row)


def plain_async(conn: AsyncConnection[Any]) -> AsyncCursor[Any]:
    """The asyncio form of `plain`."""
    return AsyncCursor(conn, row_factory=tuple_row)


def cursor_on(conn: Connection[Any], row_factory: Any) -> Cursor[Any]:
    """A cursor with these rows, on a connection of ours or of the application's, whatever cursors that makes."""
    return (SharedCursor if isinstance(conn, SharedConnection) else Cursor)(conn, row_factory=row_factory)


def cursor_on_async(conn: AsyncConnection[Any], row_factory: Any) -> AsyncCursor[Any]:
    """The asyncio form of `cursor_on`."""
    return (AsyncSharedCursor if isinstance(conn, AsyncSharedConnection) else AsyncCursor)(
        conn, row_factory=row_factory
    )


def is_shared(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Does it get another session for each transaction?"""
    return isinstance(conn, SharedConnection | AsyncSharedConnection)


def begin(conn: Connection[Any]) -> None:
    """Open a transaction that the caller ends, on a connection of whatever kind."""
    conn.begin() if isinstance(conn, SharedConnection) else conn.execute("BEGIN")


async def begin_async(conn: AsyncConnection[Any]) -> None:
    """The asyncio form of `begin`."""
    await (conn.begin() if isinstance(conn, AsyncSharedConnection) else conn.execute("BEGIN"))


def make_ready(conn: Any, settings: Mapping[str, str]) -> None:
    """Make a fresh SharedConnection ready: its cursors, what it reads, and what its transactions begin with."""
    conn.settings = assigning(settings, local=True)
    conn.cursor_factory = SharedCursor if isinstance(conn, Connection) else AsyncSharedCursor
    sealed.read_our_styles(conn)


READ_COMMITTED = IsolationLevel.READ_COMMITTED
