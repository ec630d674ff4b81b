"""Keep the sessions of a process: open them, hand out places in lines, and end them at the end of the program.

One thread and one connection serve all sessions of an App: they renew them and hear what changes in their lines. All
methods can be called from any thread.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from pgsched.core.model import Row
from pgsched.db.connection.forks import tell_of_forks
from pgsched.db.enqueuer import Enqueuer
from pgsched.db.queries.recipes import locks
from pgsched.db.queries.recipes.locks import Answer
from pgsched.errors import DatabaseUnreachable, LeaseLost, PgschedError
from pgsched.recipes.items.item_waiting import Line
from pgsched.recipes.sessions.keeper_thread import KeeperThread
from pgsched.recipes.sessions.places import Place
from pgsched.recipes.sessions.session import CLOSED, Session, now, own_name

_keepers: WeakSet[Keeper] = WeakSet()
_lock = threading.Lock()


class Keeper:
    """The sessions of an App. `database`: the App's connections."""

    def __init__(self, database: Enqueuer) -> None:
        self.database = database
        self._sessions: dict[float, Session] = {}
        self._thread: KeeperThread | None = None
        self.forget_parent()
        tell_of_forks(self)
        _keepers.add(self)

    def before_fork(self) -> None:
        """Do nothing: the parent goes on with its sessions."""

    def forget_parent(self) -> None:
        """Begin anew: in a new keeper, and in a child process, which holds nothing of its parent's."""
        if self._thread is not None:
            self._thread.forget()
        # re-entrant: a signal handler, or the garbage collector, may give a place back while its thread is inside
        self._lock = threading.RLock()
        self._sessions, self._thread = {}, None
        self._lines: WeakKeyDictionary[Session, dict[str, Line]] = WeakKeyDictionary()

    # ---- sessions

    @property
    def cut_off(self) -> str | None:
        """Why the sessions cannot be renewed at present; None while the database answers."""
        thread = self._thread
        return None if thread is None else thread.cut_off

    def session(self, ttl_s: float) -> Session:
        """Return the session with this ttl; open it where there is none. Raises DatabaseUnreachable."""
        session = self._find(ttl_s)
        if not session.id:
            sent_at = now()
            with self._dropping(session):
                found = self.database.call(None, opening(session))
            self._opened(session, sent_at, found)
        return session

    async def session_async(self, ttl_s: float) -> Session:
        """Return the session with this ttl: the asyncio form of `session`."""
        session = self._find(ttl_s)
        if not session.id:
            sent_at = now()
            with self._dropping(session):
                found = await self.database.call_async(None, opening(session))
            self._opened(session, sent_at, found)
        return session

    def close(self) -> None:
        """End all sessions, and give back what they have. A later use opens new ones.

        Calls that wait for a lock raise LeaseLost.
        """
        with self._lock:
            sessions = list(self._sessions.values())
            if self._thread is not None:
                sessions += [session for session in self._thread.end() if session not in sessions]
            self._sessions, self._thread = {}, None
        for session in sessions:
            session.lose(CLOSED)
        for session in sessions:
            try:
                if session.id:
                    self.database.call(None, ending(session))
            except DatabaseUnreachable:  # they end by themselves when their time is over
                return
            except PgschedError:
                pass

    # ---- places

    def add(self, place: Place) -> None:
        """Take care of a place from now on, and of its session."""
        with self._lock:
            place.session.places.add(place)
            place.session.used_at = now()
            if place.session.lost is None:
                self._serving().keep(place.session)

    def ask(self, conn: Any, place: Place, params: Row) -> Answer:
        """Ask the database for this place, and note the answer. Raises what `locks.acquire` raises."""
        with self._lock:
            if place.dropped:  # its caller was cancelled before this call began
                raise LeaseLost(f'"{place.name}" is not asked for any more')
            place.open_calls += 1
            hints = place.hints
        try:
            answer = locks.acquire(conn, params)
        except PgschedError as error:
            if not isinstance(error, DatabaseUnreachable):
                self._answered(place)
            raise
        with self._lock:
            place.in_line = answer.place is not None
            self._answered(place)  # only now: an interrupted caller gives back what is in line, or may be
            if place.dropped:
                self._give_back(place)
            elif answer.fence is not None:
                place.granted(answer.fence)
            elif place.in_line:
                # what was heard since the call was sent may have been about this place
                place.session.places.wait(place, 0.0 if place.hints != hints else look_at(place, answer.look_in_s))
                self._ring()
        return answer

    def forget(self, place: Place) -> None:
        """Take care of a place no more: its caller gives it back."""
        with self._lock:
            place.session.places.remove(place)
            place.session.used_at = now()

    def line(self, session: Session, queue: str) -> Line:
        """Return the line of the calls that wait for items of this queue with this session."""
        with self._lock:
            lines = self._lines.setdefault(session, {})
            if queue not in lines:
                lines[queue] = Line()
                session.losses.add_watcher(lines[queue].hint)
            return lines[queue]

    @property
    def listens(self) -> bool:
        """Whether notifications come now. They do not behind a pooler, and while the connection is lost."""
        return self._thread is not None and self._thread.listens

    def remove(self, place: Place, *, give_back: bool) -> None:
        """Take care of a place no more. `give_back`: let the thread give it back."""
        if give_back:
            self.drop(place)
        else:
            self.forget(place)

    def drop(self, place: Place, *, released: bool = False) -> None:
        """Take care of a place no more, and let the thread give it back, unless it was released or is not there."""
        with self._lock:
            self.forget(place)
            place.dropped = True
            place.in_line = place.in_line and not released
            self._give_back(place)

    def _find(self, ttl_s: float) -> Session:
        with self._lock:
            session = self._sessions.get(ttl_s)
            if session is None or (session.id and session.lost is not None):
                session = self._sessions[ttl_s] = Session(ttl_s)
            return session

    @contextlib.contextmanager
    def _dropping(self, session: Session) -> Iterator[None]:
        """Drop a session whose opening fails: the next call makes another one."""
        try:
            yield
        except BaseException:
            with self._lock:
                if self._sessions.get(session.ttl_s) is session and not session.id:
                    del self._sessions[session.ttl_s]
            raise

    def _opened(self, session: Session, sent_at: float, found: int) -> None:
        with self._lock:
            if session.lost == CLOSED:
                raise LeaseLost(CLOSED)
            session.renewed(sent_at)
            session.id = found
            session.used_at = now()
            self._sessions.setdefault(session.ttl_s, session)
            self._serving().keep(session)
        end_at_exit()

    def _serving(self) -> KeeperThread:
        """Return the thread that serves the sessions; start one where there is none. Called while the lock is held."""
        if self._thread is None or not self._thread.is_serving():
            thread = KeeperThread(self.database.dsn(), self._lock)
            thread.start()
            self._thread = thread
        return self._thread

    def _answered(self, place: Place) -> None:
        with self._lock:
            place.open_calls -= 1

    def _ring(self) -> None:
        if self._thread is not None:
            self._thread.ring()

    def _give_back(self, place: Place) -> None:
        """Let the thread give a place back that is there, or may be. Those of a closed session end with it."""
        if place.may_be_there and place.session.lost != CLOSED and not place.session.is_parents:
            with contextlib.suppress(PgschedError):  # no thread can be started: it ends with its session
                self._serving().give_back(place)


def opening(session: Session) -> Callable[[Any], int]:
    """Return the call that opens this session."""
    return lambda conn: locks.open_session(conn, session.token, session.ttl_s, own_name())


def ending(session: Session) -> Callable[[Any], None]:
    """Return the call that ends this session."""
    return lambda conn: locks.end_session(conn, session.token)


def look_at(place: Place, in_s: float | None) -> float:
    """Return when to ask for a place again: the first in line when a lease ends, others with the heartbeat."""
    longest = place.session.longest_look_s()
    return now() + (longest if in_s is None else min(max(in_s, 0.0), longest))


def end_at_exit() -> None:
    """End all sessions at the end of the program: what they hold is free at once."""
    global _at_exit  # noqa: PLW0603  once in a process
    with _lock:
        if not _at_exit:
            _at_exit = True
            atexit.register(close_all)


_at_exit = False


def close_all() -> None:
    """End the sessions of all Apps of this process."""
    for keeper in list(_keepers):
        keeper.close()
