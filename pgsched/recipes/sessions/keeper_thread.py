"""The thread that renews sessions and looks at the lines in which their places wait.

Invariant: a renewal waits behind one other statement at most. The thread waits for no lock for longer than
LOCK_TIMEOUT. Notifications come by a connection of their
own: any role may send as many as it likes, and an answer would have to wait until all were read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from pgsched.db.connection.bounded import expect
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.failures import back_off_s
from pgsched.db.connection.forks import open_unshared
from pgsched.db.connection.notifications import Bell, listen_to
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.errors import PgschedError
from pgsched.recipes.sessions.lease_care import LeaseCare, warn
from pgsched.recipes.sessions.places import Place
from pgsched.recipes.sessions.session import Session, now

LOCK_TIMEOUT = "300ms"
STATEMENT_S = 5.0
LEAST_ANSWER_S = 1.0
FIRST_BACK_OFF_S = 0.05
LONGEST_BACK_OFF_S = 1.0
LISTEN_AGAIN_S = 5.0  # after the connection for notifications was refused


class KeeperThread:
    """Renews sessions, until it is told to end, or has none.

    `lock`: guards the sessions and their places. `cut_off`: why the database cannot be asked; None while it answers.
    `listens`: notifications come now.
    """

    def __init__(self, dsn: str, lock: Any) -> None:
        self._dsn = dsn
        self._lock = lock
        self._bell = Bell()
        self._sessions: list[Session] = []
        self._care = LeaseCare(lock)
        self._ended = self._ending = False
        self.listens = False  # notifications come
        self._failures = 0
        self.cut_off: str | None = None
        self._conns: list[Connection[Any]] = []  # for statements; then, if any, for notifications
        self._thread = threading.Thread(target=self._run, name="pgsched-leases", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises PgschedError where the system has none left."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._bell.close()
            raise PgschedError(f"locks need a thread, and the system has none left: {error}") from error

    def is_serving(self) -> bool:
        """Whether the thread goes on. Called while the lock is held, as are `keep`, `ring`, `give_back` and `end`."""
        return not self._ended and not self._ending and self._thread.is_alive()

    def keep(self, session: Session) -> None:
        """Renew this session from now on."""
        if session not in self._sessions:
            self._sessions.append(session)
            self.ring()

    def ring(self) -> None:
        """Let the thread look what there is to do."""
        if not self._ended:
            self._bell.ring()

    def give_back(self, place: Place) -> None:
        """Give this place back as soon as possible."""
        self._care.left.add(place)
        self.ring()

    def end(self) -> list[Session]:
        """Let the thread end soon; return its sessions, which it renews no more."""
        self._ending = True
        self.ring()
        return list(self._sessions)

    def forget(self) -> None:
        """Close what a child process has inherited from the parent's thread."""
        if not self._ended:
            self._bell.abandon(self._conns)

    def _run(self) -> None:
        try:
            while not self._is_over():
                try:
                    self._serve(self._connect("leases"))
                except (DatabaseError, PgschedError) as error:
                    self._pause_after(error)
                finally:
                    self._disconnect()
        except BaseException as error:
            self._lose_all(f"the thread that renews it has ended: {type(error).__name__}: {error}")
            raise
        finally:
            with self._lock:
                self._ended = True
                self._bell.close()

    def _connect(self, purpose: str, timeout_s: float = STATEMENT_S) -> Connection[Any]:
        """Open one more connection, of which no child process has a copy."""
        settings = {"lock_timeout": LOCK_TIMEOUT}
        place = len(self._conns)

        def keep(conn: Connection[Any]) -> None:
            self._conns[place:] = [conn]

        return open_unshared(lambda: connect(self._dsn, purpose=purpose, timeout_s=timeout_s, settings=settings), keep)

    def _disconnect(self, keep: int = 0) -> None:
        """Close all connections but the first `keep`."""
        while len(self._conns) > keep:
            self._conns.pop().close()

    def _is_over(self) -> bool:
        """Drop sessions that are lost; return whether there is nothing more to do."""
        with self._lock:
            for session in list(self._sessions):
                if (why := session.lost) is not None:
                    session.lose(why)
                    self._sessions.remove(session)
            self._ending = self._ending or not (self._sessions or self._care.left)
            return self._ending

    def _pause_after(self, error: Exception) -> None:
        """Pause before the next connection. What the sessions have is lost only when their time is over."""
        self.listens = False
        if not self._failures:
            warn("renewing leases again", error)
        self._failures += 1
        self._note_cut_off(str(error))
        self._bell.wait(None, min(LONGEST_BACK_OFF_S, back_off_s(self._failures, FIRST_BACK_OFF_S)))

    def _note_cut_off(self, why: str | None) -> None:
        """Note that the database cannot be asked, or that it answers again, and wake whoever waits for that."""
        is_new, self.cut_off = (self.cut_off is None) != (why is None), why
        with self._lock:
            sessions = list(self._sessions) if is_new else []
        for session in sessions:
            session.losses.tell()

    def _lose_all(self, why: str) -> None:
        with self._lock:
            sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.lose(why)

    def _serve(self, conn: Connection[Any]) -> None:
        listens = not is_shared(conn)
        listening: set[str] = set()
        listen_at = 0.0
        while not self._is_over():
            with self._lock:
                sessions = list(self._sessions)
            answer_s = min((session.ttl_s / 6 for session in sessions), default=STATEMENT_S)
            answer_s = max(LEAST_ANSWER_S, min(STATEMENT_S, answer_s))
            expect(conn, answer_s)
            if self.cut_off is not None:  # which sessions have survived?
                for session in sessions:
                    session.beat_at = 0.0
            self._care.renew_due(conn, sessions)
            if self.cut_off is not None:  # what was told meanwhile was not heard
                with self._lock:
                    for session in sessions:
                        session.places.hint_granted()
            self._note_cut_off(None)
            channels = {session.channel for session in sessions}
            if listens and not channels <= listening and listen_at <= now():
                listening = channels if self._listen(channels, answer_s) else set()
                listen_at = 0.0 if listening else now() + LISTEN_AGAIN_S
                with self._lock:
                    for session in sessions:
                        session.places.hint_waiting()
                for session in sessions:
                    session.beat_at = 0.0  # a renewal says whether something was taken away before it listened
                    session.losses.tell()
            self.listens = listens and channels <= listening
            self._hear(sessions)
            for session in sessions:
                self._care.look(conn, session, self.listens)
                self._care.renew_due(conn, sessions)
            self._care.give_back(conn, sessions)
            self._care.end_unused(conn, sessions)
            self._failures = 0
            next_at = self._care.next_at(sessions)
            self._bell.wait(self._conns[-1], (min(next_at, listen_at) if listen_at else next_at) - now())

    def _listen(self, channels: Iterable[str], timeout_s: float) -> bool:
        """Listen to these channels by a new connection: one that hears something would answer late.

        Return False where that is refused: leases are renewed all the same, and it is asked as behind a pooler.
        """
        self._disconnect(keep=1)
        try:
            conn = self._connect("hints", timeout_s)
            self._bell.attach(conn)
            for channel in sorted(channels):
                listen_to(conn, channel)
        except (DatabaseError, PgschedError) as error:
            self._disconnect(keep=1)
            warn("no notifications of locks come now", error)
            return False
        return True

    def _hear(self, sessions: Iterable[Session]) -> None:
        """Note which places the notifications name that have come."""
        of_channel = {session.channel: session for session in sessions}
        heard = list(self._bell.heard)
        self._bell.heard.clear()
        known = [(of_channel[one.channel], one.payload) for one in heard if one.channel in of_channel]
        with self._lock:
            for session, mark in known:
                session.places.hint(mark)
        for session in {session for session, mark in known if not mark}:  # there is something in a queue
            session.losses.tell()
