"""Transactions of SQLAlchemy sessions and connections, with any driver and database: SQLAlchemy's events tell of them.

An enqueue on a Session belongs to the session's own transaction: it counts when `session.commit()` has committed, also
where a test keeps the session inside a transaction of the test and rolls that back at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from pgsched.testing.callers.base import CallerTransaction, Report

Listen = tuple[Any, str, Callable[..., None]]


class InSession(CallerTransaction):
    """Enqueues on a Session. `left`: the session's transactions that they are part of and that are open."""

    def __init__(self, session: Session, innermost: SessionTransaction, *, is_async: bool) -> None:
        super().__init__(session)
        self.is_async = is_async
        self.left: list[SessionTransaction] = []
        one: SessionTransaction | None = innermost
        while one is not None:
            self.left.append(one)
            one = one.parent


class OnConnection(CallerTransaction):
    """Enqueues on a Connection. `later`: how many savepoints are open that were made after them."""

    def __init__(self, conn: Connection) -> None:
        super().__init__(conn)
        self.later = 0


class WatchedSession:
    """A Session, and the enqueues in its transactions."""

    def __init__(self, session: Session, report: Report) -> None:
        self.followed: list[InSession] = []
        self._report = report
        self._committed: SessionTransaction | None = None
        self.listeners: list[Listen] = [
            (session, "after_commit", self._after_commit),
            (session, "after_transaction_end", self._after_transaction_end),
        ]

    def follow(self, session: Session, *, is_async: bool) -> InSession:
        """Return what follows an enqueue that is made now: the same as for the last one if no savepoint is between."""
        innermost = session.get_nested_transaction() or session.get_transaction() or session.begin()
        last = self.followed[-1] if self.followed else None
        if last is None or last.left[0] is not innermost or last.is_async != is_async:
            last = InSession(session, innermost, is_async=is_async)
            self.followed.append(last)
        return last

    def _after_commit(self, session: Session) -> None:
        self._committed = session.get_nested_transaction() or session.get_transaction()

    def _after_transaction_end(self, session: Session, ended: SessionTransaction) -> None:
        """Only now may a handler use the session: `after_commit` comes while its transaction still ends."""
        done = []
        for one in [one for one in self.followed if ended in one.left]:
            one.left.remove(ended)
            if ended is not self._committed:
                one.state = "rolled back"
            elif not one.left:
                one.state = "committed"
                done.append(one)
        self.followed = [one for one in self.followed if one.state == "open"]
        for one in done:
            self._report(one)


class WatchedConnection:
    """A Connection, and the enqueues in its transactions. SQLAlchemy tells of a commit just before it sends it."""

    def __init__(self, conn: Connection) -> None:
        self.followed: list[OnConnection] = []
        self._committing: list[OnConnection] = []
        self._conn = conn
        self.listeners: list[Listen] = [
            (conn, "commit", self._commit),
            (conn, "commit_twophase", self._commit),
            (conn, "rollback", self._rollback),
            (conn, "rollback_twophase", self._rollback),
            (conn, "savepoint", self._savepoint),
            (conn, "release_savepoint", self._release_savepoint),
            (conn, "rollback_savepoint", self._rollback_savepoint),
            (conn.engine, "handle_error", self._failed),
        ]

    def follow(self) -> OnConnection:
        """Return what follows an enqueue that is made now: the same as for the last one if no savepoint is between."""
        if not self.followed or self.followed[-1].later:
            self.followed.append(OnConnection(self._conn))
        return self.followed[-1]

    def _commit(self, *_: Any) -> None:
        self._committing, self.followed = self.followed, []
        for one in self._committing:
            one.state = "committed"

    def _failed(self, context: ExceptionContext) -> None:
        """Take a failed commit, which has no statement, for a rollback."""
        if context.connection is self._conn and context.statement is None:
            for one in self._committing:
                one.state = "rolled back"
            self._committing = []

    def _rollback(self, *_: Any) -> None:
        self._committing = []
        for one in self.followed:
            one.state = "rolled back"
        self.followed = []

    def _savepoint(self, *_: Any) -> None:
        for one in self.followed:
            one.later += 1

    def _release_savepoint(self, *_: Any) -> None:
        for one in self.followed:
            one.later = max(0, one.later - 1)

    def _rollback_savepoint(self, *_: Any) -> None:
        for one in self.followed:
            if not one.later:
                one.state = "rolled back"
        self.followed = [one for one in self.followed if one.state == "open"]
        self._release_savepoint()


class Watches:
    """Follows the transactions of SQLAlchemy's sessions and connections."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._sessions: dict[Session, WatchedSession] = {}
        self._connections: dict[Connection, WatchedConnection] = {}

    def follow(self, given: Any) -> CallerTransaction | None:
        """Return the transaction of what `find_handle` returned; None if each statement commits by itself."""
        if isinstance(given, AsyncConnection):
            given.in_transaction()  # raises SQLAlchemy's own error if the connection has not been opened
        plain = names_transaction(given)
        if isinstance(plain, Session):
            return self._follow_session(plain, is_async=isinstance(given, AsyncSession))
        return self._follow_connection(plain)

    def _follow_session(self, session: Session, *, is_async: bool) -> CallerTransaction:
        if session not in self._sessions:
            self._sessions[session] = WatchedSession(session, self._report)
            add_listeners(self._sessions[session].listeners)
        return self._sessions[session].follow(session, is_async=is_async)

    def _follow_connection(self, conn: Connection) -> CallerTransaction | None:
        if getattr(conn.connection.dbapi_connection, "autocommit", False) is True:
            return None
        if conn not in self._connections:
            self._connections[conn] = WatchedConnection(conn)
            add_listeners(self._connections[conn].listeners)
        if not conn.in_transaction():
            conn.begin()  # like its own first statement, so that its commit() includes our run
        return self._connections[conn].follow()

    def close(self) -> None:
        """Take the listeners back."""
        of_sessions = [listener for watched in self._sessions.values() for listener in watched.listeners]
        of_connections = [listener for watched in self._connections.values() for listener in watched.listeners]
        for target, name, function in [*of_sessions, *of_connections]:
            event.remove(target, name, function)
        self._sessions.clear()
        self._connections.clear()


def add_listeners(listeners: list[Listen]) -> None:
    """Listen to these events."""
    for target, name, function in listeners:
        event.listen(target, name, function)


def find_handle(given: Any) -> Any:
    """Return the Session or Connection, sync or async, that a SQLAlchemy object stands for; None for another object."""
    if isinstance(given, scoped_session | async_scoped_session):
        given = given()
    return given if isinstance(given, Session | Connection | AsyncSession | AsyncConnection) else None


def names_transaction(given: Any) -> Any:
    """Return the sync Session or Connection, which names the transaction."""
    if isinstance(given, AsyncSession):
        return given.sync_session
    return given.sync_connection if isinstance(given, AsyncConnection) else given
