"""The thread that renews sessions and looks at the lines in which their places wait.

Invariant: a renewal waits behind one other statement at most. The thread waits for no lock for longer than
LOCK_TIMEOUT. An error about one session, or one place, delays no other one. Notifications come by a connection of their
own: any role may send as many as it likes, and an answer would have to wait until all were read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from pgsched import log
from pgsched.db.connection.bell import Bell
from pgsched.db.connection.bounded import expect
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.failures import back_off_s, explain_error
from pgsched.db.connection.reuse import is_idle
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.recipes import locks
from pgsched.db.queries.recipes.locks import LeaseState
from pgsched.errors import PgschedError
from pgsched.recipes.leftovers import Leftovers
from pgsched.recipes.places import Place
from pgsched.recipes.session import Session, now

logger = log.get("recipes")

LOCK_TIMEOUT = "300ms"
STATEMENT_S = 5.0
LEAST_ANSWER_S = 1.0
IDLE_S = 60.0  # a session without places ends after this time
FIRST_BACK_OFF_S = 0.05
LONGEST_BACK_OFF_S = 1.0
LONGEST_POLL_S = 1.0  # behind a pooler, for the first in line
POLL_PER_POSITION_S = 0.1  # for the others: a line does not move faster where all poll
GIVEN_BACK_AT_ONCE = 20


class KeeperThread:
    """Renews sessions, until it is told to end, or has none.

    `lock`: guards the sessions and their places. `cut_off`: why the database cannot be asked; None while it answers.
    """

    def __init__(self, dsn: str, lock: Any) -> None:
        self._dsn = dsn
        self._lock = lock
        self._bell = Bell()
        self._sessions: list[Session] = []
        self._left = Leftovers()
        self._ended = self._ending = False
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
        self._left.add(place)
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
                    self._conns = [self._connect("leases")]
                    self._serve(self._conns[0])
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

    def _connect(self, purpose: str) -> Connection[Any]:
        settings = {"lock_timeout": LOCK_TIMEOUT}
        return connect(self._dsn, purpose=purpose, timeout_s=STATEMENT_S, settings=settings)

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
            self._ending = self._ending or not (self._sessions or self._left)
            return self._ending

    def _pause_after(self, error: Exception) -> None:
        """Pause before the next connection. What the sessions have is lost only when their time is over."""
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
        while not self._is_over():
            with self._lock:
                sessions = list(self._sessions)
            answer_s = min((session.ttl_s / 6 for session in sessions), default=STATEMENT_S)
            expect(conn, max(LEAST_ANSWER_S, min(STATEMENT_S, answer_s)))
            if self.cut_off is not None:  # which sessions have survived?
                for session in sessions:
                    session.beat_at = 0.0
            self._renew_due(conn, sessions)
            self._note_cut_off(None)
            channels = {session.channel for session in sessions}
            if listens and not channels <= listening:
                self._listen(channels)
                listening = channels
                with self._lock:
                    for session in sessions:
                        session.places.hint_waiting()
            self._hear(sessions)
            for session in sessions:
                self._look(conn, session, listens)
                self._renew_due(conn, sessions)
            self._give_back(conn, sessions)
            self._end_unused(conn, sessions)
            self._failures = 0
            self._bell.wait(self._conns[-1], self._next_at(sessions) - now())

    def _listen(self, channels: Iterable[str]) -> None:
        """Listen to these channels by a new connection: one that hears something would answer late."""
        self._disconnect(keep=1)
        self._conns.append(self._connect("hints"))
        self._bell.attach(self._conns[-1])
        self._conns[-1].execute("; ".join(f"LISTEN {channel}" for channel in sorted(channels)).encode())

    def _hear(self, sessions: Iterable[Session]) -> None:
        """Note which places the notifications name that have come."""
        of_channel = {session.channel: session for session in sessions}
        heard = list(self._bell.heard)
        self._bell.heard.clear()
        with self._lock:
            for one in heard:
                if (session := of_channel.get(one.channel)) is not None:
                    session.places.hint(one.payload)

    def _renew_due(self, conn: Connection[Any], sessions: Iterable[Session]) -> None:
        """Renew those sessions whose time has come."""
        for session in sessions:
            if session.beat_at <= now() and session.lost is None and not self._tries(conn, self._renew, session):
                session.beat_at = now() + min(LONGEST_BACK_OFF_S, session.ttl_s / 10)

    def _renew(self, conn: Connection[Any], session: Session) -> None:
        sent_at = now()
        lives, newest_loss = locks.renew_session(conn, session.token)
        if not lives:
            session.lose("the database has ended its session, which was not renewed in time")
            return
        session.renewed(sent_at)
        if newest_loss != session.newest_loss:
            session.newest_loss = newest_loss
            with self._lock:
                session.places.hint_granted()

    def _look(self, conn: Connection[Any], session: Session, listens: bool) -> None:
        """Ask for the places whose time has come: those that wait, and those of which something was heard."""
        with self._lock:
            due = [one for one in session.places.take_due(now(), locks.MOST_TOKENS) if not self._is_orphan(one)]
        if not due or session.lost is not None:
            return
        if not self._tries(conn, self._read, session, due, listens):
            with self._lock:
                for place in due:
                    place.look_at = now() + LONGEST_BACK_OFF_S
                    if place.fence is not None:
                        session.places.hint(place.mark)

    def _read(self, conn: Connection[Any], session: Session, places: list[Place], listens: bool) -> None:
        """Ask how it stands with these places."""
        states = locks.read_leases(conn, session.token, [place.token for place in places], not listens)
        found = {one.token: one for one in states}
        with self._lock:
            for place in places:
                state = found.get(place.token)
                if state is not None and state.fence is None:
                    place.look_at = now() + pause_of(place, state, listens)
                    continue
                session.places.end_wait(place)
                if state is None:
                    place.take("it was taken away (lock_break), or its session was ended")
                elif place.fence is None and not self._is_orphan(place):
                    place.granted(state.fence or 0)

    def _is_orphan(self, place: Place) -> bool:
        """Return whether nobody waits for a place, or holds it; then give it back."""
        if place.fence is not None or not place.is_orphan():
            return False
        place.dropped = True
        place.session.places.remove(place)
        self._left.add(place)
        return True

    def _give_back(self, conn: Connection[Any], sessions: Iterable[Session]) -> None:
        """Give back places whose callers could not."""
        with self._lock:
            due = self._left.due(GIVEN_BACK_AT_ONCE)
        for one in due:
            if any(session.beat_at <= now() for session in sessions):
                return
            succeeded = self._tries(conn, one.place.leave)
            with self._lock:
                (self._left.succeed if succeeded else self._left.fail)(one)

    def _end_unused(self, conn: Connection[Any], sessions: Iterable[Session]) -> None:
        """End sessions that have had no places for a while."""
        for session in sessions:
            with self._lock:
                if session.places or session.used_at + IDLE_S > now() or session.lost is not None:
                    continue
                session.lose("it was not used")
            locks.end_session(conn, session.token)

    def _tries(self, conn: Connection[Any], call: Callable[..., object], *args: Any) -> bool:
        """Make a call with the connection; return False where it was refused, and the connection can be used on."""
        try:
            call(conn, *args)
        except (DatabaseError, PgschedError) as error:
            if not is_idle(conn):
                raise
            warn("a statement about leases failed, and is repeated", error)
            return False
        return True

    def _next_at(self, sessions: Iterable[Session]) -> float:
        """Return when there is something to do next, on the clock of leases."""
        with self._lock:
            times = [now() + IDLE_S, self._left.next_at()]
            for session in sessions:
                unused_at = None if session.places else session.used_at + IDLE_S
                times += [session.beat_at, session.deadline, session.places.next_look_at(), unused_at]
        return min(time for time in times if time is not None)


def pause_of(place: Place, state: LeaseState, listens: bool) -> float:
    """Return after how many seconds to ask again for a place that waits."""
    longest = place.session.ttl_s / 3
    pause_s = longest if state.look_in_s is None else min(longest, max(0.01, state.look_in_s))
    if listens:
        return pause_s
    poll_s, place.poll_s = place.poll_s, min(LONGEST_POLL_S, 1.5 * place.poll_s)
    return min(pause_s, max(poll_s, POLL_PER_POSITION_S * (state.position or 1)))


def warn(what: str, error: Exception) -> None:
    """Log that something failed."""
    explained = error if isinstance(error, PgschedError) else explain_error(error)  # type: ignore[arg-type]
    logger.warning(what, error=str(explained))
