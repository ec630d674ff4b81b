"""Take care of sessions and their places: renew, ask how it stands, give back. One connection does all of it.

Invariant: an error about one session, or one place, delays no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import explain_error
from pgsched.db.connection.reuse import is_idle
from pgsched.db.queries.recipes import locks
from pgsched.db.queries.recipes.locks import LeaseState
from pgsched.errors import PgschedError
from pgsched.recipes.sessions.leftovers import Leftovers
from pgsched.recipes.sessions.places import Place
from pgsched.recipes.sessions.session import Session, now

logger = log.get("recipes")

IDLE_S = 60.0  # a session without places ends after this time
LONGEST_PAUSE_S = 1.0  # before what failed is repeated
LONGEST_POLL_S = 1.0  # behind a pooler, for the first in line
POLL_PER_POSITION_S = 0.1  # for the others: a line does not move faster where all poll
GIVEN_BACK_AT_ONCE = 20


class LeaseCare:
    """What the thread does with its connection. `lock`: guards the sessions and their places.

    `left`: places to be given back, because their callers could not.
    """

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.left = Leftovers()

    def renew_due(self, conn: Connection[Any], sessions: Iterable[Session]) -> None:
        """Renew those sessions whose time has come."""
        for session in sessions:
            if session.beat_at <= now() and session.lost is None and not self._tries(conn, self._renew, session):
                session.beat_at = now() + min(LONGEST_PAUSE_S, session.ttl_s / 10)

    def _renew(self, conn: Connection[Any], session: Session) -> None:
        sent_at = now()
        losses = locks.renew_session(conn, session.token)
        if losses is None:
            session.lose("the database has ended its session, which was not renewed in time")
            return
        session.renewed(sent_at)
        if losses != session.losses_seen:
            session.losses_seen = losses
            with self._lock:
                session.places.hint_granted()

    def look(self, conn: Connection[Any], session: Session, listens: bool) -> None:
        """Ask for the places whose time has come: those that wait, and those of which something was heard."""
        with self._lock:
            due = [one for one in session.places.take_due(now(), locks.MOST_TOKENS) if not self._is_orphan(one)]
        if not due or session.lost is not None:
            return
        if not self._tries(conn, self._read, session, due, listens):
            with self._lock:
                for place in due:
                    place.look_at = now() + LONGEST_PAUSE_S
                    if place.fence is not None:
                        session.places.hint(place.mark)

    def _read(self, conn: Connection[Any], session: Session, places: list[Place], listens: bool) -> None:
        """Ask how it stands with these places."""
        states = locks.read_leases(conn, session.token, [place.token for place in places], not listens)
        found = {one.token: one for one in states}
        with self._lock:
            for place in places:
                place.pace.note_look(now())
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
        self.left.add(place)
        return True

    def give_back(self, conn: Connection[Any], sessions: Iterable[Session]) -> None:
        """Give back places whose callers could not."""
        with self._lock:
            due = self.left.due(GIVEN_BACK_AT_ONCE)
        for one in due:
            if any(session.beat_at <= now() for session in sessions):
                return
            succeeded = self._tries(conn, one.place.leave)
            with self._lock:
                (self.left.succeed if succeeded else self.left.fail)(one)

    def end_unused(self, conn: Connection[Any], sessions: Iterable[Session]) -> None:
        """End sessions that have had no places for a while."""
        for session in sessions:
            with self._lock:
                if session.places or session.used_at + IDLE_S > now() or session.lost is not None:
                    continue
                session.lose("it was not used")
            self._tries(conn, locks.end_session, session.token)  # where it fails, its time ends it

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

    def next_at(self, sessions: Iterable[Session]) -> float:
        """Return when there is something to do next, on the clock of leases."""
        with self._lock:
            times = [now() + IDLE_S, self.left.next_at()]
            for session in sessions:
                unused_at = None if session.places else session.used_at + IDLE_S
                times += [session.beat_at, session.deadline, session.places.next_look_at(), unused_at]
        return min(time for time in times if time is not None)


def pause_of(place: Place, state: LeaseState, listens: bool) -> float:
    """Return after how many seconds to ask again for a place that waits."""
    longest = place.session.longest_look_s()
    pause_s = longest if state.look_in_s is None else min(longest, max(0.01, state.look_in_s))
    if listens:
        return pause_s
    poll_s, place.pace.next_s = place.pace.next_s, min(LONGEST_POLL_S, 1.5 * place.pace.next_s)
    return min(pause_s, max(poll_s, POLL_PER_POSITION_S * (state.position or 1)))


def warn(what: str, error: Exception) -> None:
    """Log that something failed."""
    explained = error if isinstance(error, PgschedError) else explain_error(error)  # type: ignore[arg-type]
    logger.warning(what, error=str(explained))
