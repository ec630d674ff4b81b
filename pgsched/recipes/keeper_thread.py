"""The thread that renews sessions and looks at the lines in which their places wait.

Invariant: a renewal never waits behind other work. The thread waits for no lock for longer than LOCK_TIMEOUT, and
for no answer for longer than STATEMENT_S.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from pgsched import log
from pgsched.db.connection.bell import Bell
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.failures import Reaction, back_off_s, classify, explain_error
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.recipes import locks
from pgsched.errors import PgschedError
from pgsched.recipes.session import Place, Session, now

logger = log.get("recipes")

LOCK_TIMEOUT = "300ms"
STATEMENT_S = 5.0
IDLE_S = 60.0  # a session without places ends after this time, and the thread without sessions
FIRST_BACK_OFF_S = 0.05
LONGEST_BACK_OFF_S = 1.0
LONGEST_POLL_S = 1.0  # behind a pooler


class KeeperThread:
    """Renews sessions, until it is told to end, or has been without sessions for a while.

    `lock`: guards the sessions and their places.
    """

    def __init__(self, dsn: str, lock: Any) -> None:
        self._dsn = dsn
        self._lock = lock
        self._bell = Bell()
        self._sessions: list[Session] = []
        self._left: list[Place] = []  # to be given back
        self._ended = self._ending = False
        self.listens = False  # notifications come
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="pgsched-leases", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._bell.close()
            raise PgschedError(f"locks need a thread, and the system has none left: {error}") from error

    def is_serving(self) -> bool:
        """Whether the thread goes on. Called while the lock is held, as are `keep`, `ring` and `give_back`."""
        return not self._ended and not self._ending

    def keep(self, session: Session) -> None:
        """Renew this session from now on."""
        if session not in self._sessions:
            self._sessions.append(session)
            self._bell.ring()

    def ring(self) -> None:
        """Let the thread look what there is to do."""
        if not self._ended:
            self._bell.ring()

    def give_back(self, place: Place) -> None:
        """Give this place back as soon as possible."""
        self._left.append(place)
        self.ring()

    def end(self) -> None:
        """Let the thread end soon. Its sessions are renewed no more."""
        with self._lock:
            self._ending = True
            self.ring()

    def forget(self) -> None:
        """Close what a child process has inherited from the parent's thread."""
        if not self._ended:
            self._bell.close()

    def _run(self) -> None:
        try:
            while not self._is_over():
                try:
                    with connect(
                        self._dsn, purpose="leases", timeout_s=STATEMENT_S, settings={"lock_timeout": LOCK_TIMEOUT}
                    ) as conn:
                        self._serve(conn)
                except (DatabaseError, PgschedError) as error:
                    self._pause_after(error)
        except BaseException as error:
            self._lose_all(f"the thread that renews it has ended: {type(error).__name__}: {error}")
            raise
        finally:
            with self._lock:
                self._ended = True
                self._bell.close()

    def _is_over(self) -> bool:
        """Drop sessions that are lost or unused; return whether there is nothing more to do."""
        with self._lock:
            for session in list(self._sessions):
                if (why := session.lost) is not None:
                    session.lose(why)
                    self._sessions.remove(session)
            unused = not self._left and all(not s.places and s.used_at + IDLE_S < now() for s in self._sessions)
            self._ending = self._ending or unused
            return self._ending

    def _pause_after(self, error: Exception) -> None:
        self.listens = False
        explained = error if isinstance(error, PgschedError) else explain_error(error)  # type: ignore[arg-type]
        if classify(error) in (Reaction.CONFIGURATION, Reaction.VALUE):
            self._lose_all(str(explained))
            return
        if not self._failures:
            logger.warning("renewing leases again", error=str(explained))
        self._failures += 1
        until = min(LONGEST_BACK_OFF_S, back_off_s(self._failures, FIRST_BACK_OFF_S))
        self._bell.wait(None, until)

    def _lose_all(self, why: str) -> None:
        with self._lock:
            sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.lose(why)

    def _serve(self, conn: Connection[Any]) -> None:
        listens = self.listens = not is_shared(conn)
        self._bell.attach(conn)
        listening: set[str] = set()
        while not self._is_over():
            with self._lock:
                sessions, left = list(self._sessions), self._left[:100]
            for session in sessions:
                if listens and session.channel not in listening:
                    conn.execute(f"LISTEN {session.channel}".encode())
                    listening.add(session.channel)
                    self._hint(session)
                if session.beat_at <= now():
                    self._renew(conn, session)
            for channel in self._bell.heard & listening:
                self._bell.heard.discard(channel)
                for session in sessions:
                    if session.channel == channel:
                        self._hint(session)
            for session in sessions:
                self._look(conn, session, listens)
            for place in left:
                place.leave(conn)
                with self._lock:
                    self._left.remove(place)
            self._failures = 0
            self._bell.wait(conn, self._next_at(sessions) - now())

    def _hint(self, session: Session) -> None:
        """Note that the lines of this session may have changed."""
        with self._lock:
            session.hints += 1
            for place in session.places.values():
                place.look_at = 0.0
        session.tell()

    def _renew(self, conn: Connection[Any], session: Session) -> None:
        sent_at = now()
        lives, losses = locks.renew_session(conn, session.token)
        if not lives:
            session.lose("the database has ended its session, which was not renewed in time")
            return
        session.renewed(sent_at)
        if losses != session.losses:
            session.losses = losses
            with self._lock:
                held = [place for place in session.places.values() if place.asked]
            self._read(conn, session, held)

    def _look(self, conn: Connection[Any], session: Session, listens: bool) -> None:
        """Ask for the places whose time has come: those that wait, and those of which something was heard."""
        with self._lock:
            due = [p for p in session.places.values() if p.asked and p.look_at <= now() and (p.waits or not p.look_at)]
        if due and session.lost is None:
            self._read(conn, session, due)
        if not listens:
            for place in due:
                place.look_at = min(place.look_at, now() + place.poll_s)
                place.poll_s = min(LONGEST_POLL_S, 1.5 * place.poll_s)

    def _read(self, conn: Connection[Any], session: Session, places: Iterable[Place]) -> None:
        """Ask how it stands with these places."""
        asked = list(places)
        for start in range(0, len(asked), locks.MOST_TOKENS):
            part = asked[start : start + locks.MOST_TOKENS]
            found = {one.token: one for one in locks.read_leases(conn, session.token, [place.token for place in part])}
            for place in part:
                state = found.get(place.token)
                if state is None:
                    place.take("somebody has taken it away (lock_break)")
                elif state.fence is not None:
                    place.look_at = now() + session.ttl_s
                    if place.fence is None:
                        place.granted(state.fence)
                else:
                    in_s = session.ttl_s / 3 if state.look_in_s is None else max(0.01, state.look_in_s)
                    place.look_at = now() + min(in_s, session.ttl_s / 3)

    def _next_at(self, sessions: Iterable[Session]) -> float:
        """Return when there is something to do next, on the clock of leases."""
        at = now() + IDLE_S
        with self._lock:
            for session in sessions:
                at = min(at, session.beat_at, session.deadline)
                at = min([at, *(place.look_at for place in session.places.values() if place.waits)])
        return at
