"""Transactions on psycopg connections. psycopg has no events, so PostgreSQL is asked what became of them.

Each enqueue sends a notification in the caller's transaction. PostgreSQL delivers it if the transaction commits, and
drops it with a rollback, also with one to a savepoint. The enqueue also writes its mark into a setting of the session,
and a rollback gives the setting the mark that it had before. So an open transaction can be asked which enqueue is the
newest that is still part of it. The others are found without asking: each mark knows the one that it has replaced.

Invariant: the server decides. It does not matter by which statement or method the caller ends the transaction.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import AsyncConnection, Connection, pq
from psycopg.conninfo import make_conninfo

from pgsched.db.connection.connect import connect
from pgsched.db.queries import testing
from pgsched.errors import InputError
from pgsched.testing.callers.base import CallerTransaction

Either = Connection[Any] | AsyncConnection[Any]


class PsycopgTransaction(CallerTransaction):
    """A transaction on a psycopg connection. `before`: the mark that the session had before the enqueue."""

    def __init__(self, conn: Either, before: str) -> None:
        super().__init__(conn)
        self.before = before


class MarkedConnection:
    """A connection, and the enqueues in its open transaction.

    `conn`: the connection.
    `listener`: hears of the commits in its database.
    """

    def __init__(self, conn: Either, listener: Listener) -> None:
        self.conn = conn
        self.listener = listener
        self._open: dict[str, PsycopgTransaction] = {}  # by their marks
        self._newest: str | None = ""  # the mark of the session; None where a rollback may have taken others before it
        self._marking = 0  # how many marks are being written at this moment

    @property
    def is_in_use(self) -> bool:
        """Whether enqueues wait for the commit or rollback of this connection."""
        return bool(self._open or self._marking)

    def status(self) -> int:
        """Return the status of the connection's transaction."""
        return self.conn.pgconn.transaction_status

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Judge no rollback while a mark is written in this block."""
        self._marking += 1
        try:
            yield
        finally:
            self._marking -= 1

    def add(self, mark: str, before: str) -> PsycopgTransaction:
        """Add an enqueue. `before`: the mark that the session had before."""
        self._newest = mark if before == self._newest else None
        one = self._open[mark] = PsycopgTransaction(self.conn, before)
        return one

    def look(self, status: int, committed: set[str]) -> None:
        """Find out what has become of the enqueues, as the server says.

        `status`: of the connection, before the listener was asked. `committed`: the marks that it has heard.
        """
        for mark in committed & self._open.keys():
            self._open.pop(mark).state = "committed"
        if not self._open or self._marking:
            return
        if status in (pq.TransactionStatus.IDLE, pq.TransactionStatus.UNKNOWN):
            self._roll_back({})
        elif status == pq.TransactionStatus.INTRANS:
            newest = self.listener.mark_of(testing.transaction_marks(self.conn))
            if newest != self._newest:
                self._newest = newest
                self._roll_back(self._made_until(newest))

    def _made_until(self, mark: str) -> set[str]:
        """Return a mark, and those that were made before it and are still there."""
        found = set()
        while mark in self._open:
            found.add(mark)
            mark = self._open[mark].before
        return found

    def _roll_back(self, kept: Collection[str]) -> None:
        for mark in [mark for mark in self._open if mark not in kept]:
            self._open.pop(mark).state = "rolled back"


class Listener:
    """A connection of the recorder's own, which hears of the commits in one database."""

    def __init__(self, dsn: str, channel: str) -> None:
        self._conn = connect(dsn, purpose="testing")
        self._channel = channel
        self._committed: set[str] = set()
        self._conn.add_notify_handler(lambda note: self._committed.add(note.payload))
        testing.listen_to_channel(self._conn, channel)
        own = f"{channel}.0"
        testing.mark_transaction(self._conn, channel, own)
        if own not in self.hear():
            self.close()
            raise InputError(
                "connection: it leads through a pooler that keeps notifications back, so a test cannot know whether it"
                " commits: connect to the server itself, or use wait_for_commit=False",
                "connection",
            )

    def hear(self) -> set[str]:
        """Return the marks of the transactions that have committed since the last call."""
        testing.hear_notifications(self._conn)
        heard = {*self._committed}
        self._committed -= heard
        return heard

    def mark_of(self, marks: list[str]) -> str:
        """Return the one of these marks that belongs to this recorder, or an empty text."""
        return next((mark for mark in marks if mark.startswith(f"{self._channel}.")), "")

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()


class Listeners:
    """Follows the transactions on psycopg connections; has a listener for each database."""

    def __init__(self) -> None:
        self._channel = f"pgsched_recorder_{uuid.uuid4().hex}"
        self._numbers = itertools.count(1)
        self._of_dsn: dict[str, Listener] = {}
        self._marked: dict[Either, MarkedConnection] = {}

    def follow(self, conn: Connection[Any]) -> CallerTransaction | None:
        """Mark the caller's transaction, and return it; None if each statement commits by itself."""
        if commits_by_itself(conn):
            return None
        marked, mark = self._find(conn), f"{self._channel}.{next(self._numbers)}"
        with marked.marking():
            before = testing.mark_transaction(conn, self._channel, mark)
            return marked.add(mark, marked.listener.mark_of(before))

    async def follow_async(self, conn: AsyncConnection[Any]) -> CallerTransaction | None:
        """Mark the caller's transaction: the asyncio form of `follow`."""
        if commits_by_itself(conn):
            return None
        marked, mark = self._find(conn), f"{self._channel}.{next(self._numbers)}"
        with marked.marking():
            before = await testing.mark_transaction_async(conn, self._channel, mark)
            return marked.add(mark, marked.listener.mark_of(before))

    def look(self) -> None:
        """Find out which transactions have ended: one question to each listener, and one to each connection."""
        statuses = [(one, one.status()) for one in [*self._marked.values()]]
        if not statuses:
            return
        # the statuses were read before the notifications: a commit may come between
        committed = {mark for listener in self._of_dsn.values() for mark in listener.hear()}
        for one, status in statuses:
            one.look(status, committed)
            if not one.is_in_use:
                self._marked.pop(one.conn, None)

    def close(self) -> None:
        """Close the connections that listen."""
        for listener in self._of_dsn.values():
            listener.close()
        self._of_dsn.clear()
        self._marked.clear()

    def _find(self, conn: Either) -> MarkedConnection:
        if conn not in self._marked:
            password = {"password": conn.info.password} if conn.info.password else {}
            dsn = make_conninfo(**{**conn.info.get_parameters(), **password})
            if dsn not in self._of_dsn:
                self._of_dsn[dsn] = Listener(dsn, self._channel)
            self._marked[conn] = MarkedConnection(conn, self._of_dsn[dsn])
        return self._marked[conn]


def commits_by_itself(conn: Either) -> bool:
    """Check whether a statement on this connection would be a transaction of its own."""
    return bool(conn.autocommit) and conn.info.transaction_status == pq.TransactionStatus.IDLE
