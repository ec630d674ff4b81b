"""The thread of `pgsched top` that reads the database and makes changes, on a connection of its own.

Keys work while the database does not answer, because only this thread waits for it.

Invariant: the thread reads only the page that is shown, for at most a fifth of the time. After a lost connection it
reports the loss and keeps trying.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from pgsched.cli.top.state import Note
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import Reaction, back_off_s, classify, first_line
from pgsched.errors import PgschedError
from pgsched.log import redact
from pgsched.services.top import Change, Look, Page, TopReader, act, connect_for_top

PAUSE_FACTOR = 4.0  # after a look, pause at least this many times as long as the look took
FIRST_S = 0.5


class DatabaseLost(NamedTuple):
    """News that the database does not answer, with the error; `at`: since when, in monotonic seconds."""

    text: str
    at: float


News = Look | Note | DatabaseLost


class Reader(threading.Thread):
    """A thread that reads the shown page and makes the requested changes, one after the other.

    `news`: the results, oldest first; each result wakes the loop through `wake_fd`.
    """

    def __init__(
        self, dsn: str, conn: Connection[Any], looking: TopReader, page: Page, every_s: float, wake_fd: int
    ) -> None:
        super().__init__(name="pgsched-top", daemon=True)
        self.news: deque[News] = deque()
        self.error: Exception | None = None  # the unexpected error that ended the thread
        self._dsn, self._every_s, self._wake = dsn, every_s, wake_fd
        self._conn: Connection[Any] | None = conn
        self._looking, self._page = looking, page
        self._changes: deque[Change] = deque()
        self._work_ready = threading.Event()
        self._stopping = False
        self._lost_at: float | None = None
        self._failures = 0

    def look(self, page: Page) -> None:
        """Read this page from now on; at once if it is another page than before."""
        if page != self._page:
            self._page = page
            self._work_ready.set()

    def do(self, change: Change) -> None:
        """Make this change, then look again."""
        self._changes.append(change)
        self._work_ready.set()

    def stop(self) -> None:
        """End the thread after its current look."""
        self._stopping = True
        self._work_ready.set()

    def run(self) -> None:
        """Look and make changes until `stop` is called; keep an unexpected error in `error`."""
        try:
            while not self._stopping:
                self._work_ready.clear()
                self._work_ready.wait(self._once())
        except Exception as error:  # the loop must not go on drawing an old look
            self.error = error
            self._ring()
        self._close()

    def _once(self) -> float:
        """Make the requested changes and look; return the seconds to wait until the next look."""
        began = time.monotonic()
        try:
            if self._conn is None or self._conn.closed:
                self._conn = connect_for_top(self._dsn)
            while self._changes:
                self._tell(make_change(self._conn, self._changes.popleft()))
            self._tell(self._looking.look(self._conn, self._page))
        except (DatabaseError, PgschedError) as error:
            return self._failed(error)
        self._lost_at, self._failures = None, 0
        return max(self._every_s, PAUSE_FACTOR * (time.monotonic() - began))

    def _failed(self, error: Exception) -> float:
        """Report the error and drop the requested changes; return the seconds to wait until the next try."""
        self._close()
        self._lost_at = self._lost_at or time.monotonic()
        self._tell(DatabaseLost(redact(first_line(error)), self._lost_at))
        self._failures += 1
        while self._changes:
            lost = self._changes.popleft()
            self._tell(Note(f"{lost.verb} {lost.what} {lost.key}: not done, the database does not answer", bad=True))
        return back_off_s(self._failures, FIRST_S)

    def _tell(self, news: News) -> None:
        self.news.append(news)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake, b".")

    def _close(self) -> None:
        if self._conn is not None:
            with contextlib.suppress(DatabaseError):
                self._conn.close()
        self._conn = None


def make_change(conn: Connection[Any], wanted: Change) -> Note:
    """Make one change and return a note with its result."""
    try:
        return Note(act(conn, wanted))
    except (DatabaseError, PgschedError) as error:
        lost = conn.closed or classify(error) is Reaction.RECONNECT
        doubt = f"{wanted.verb} {wanted.what} {wanted.key}: the connection was lost, look whether it is done"
        return Note(doubt if lost else redact(first_line(error)), bad=True)
