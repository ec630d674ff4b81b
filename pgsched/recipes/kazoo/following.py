"""Keep the session of a client open, and follow how it stands with it: one thread for a client.

Invariant: the session counts as lost before the database can end it, so that LOST is reported no later than another
process can have what it held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from pgsched import log
from pgsched.db.connection.failures import back_off_s
from pgsched.errors import DatabaseUnreachable, PgschedError
from pgsched.recipes.kazoo.states import KazooState
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.sessions.places import CallWaker, Place
from pgsched.recipes.sessions.session import Session

logger = log.get("kazoo")

FIRST_BACK_OFF_S = 0.05
LONGEST_BACK_OFF_S = 1.0


class SessionFollower:
    """Opens a session, and another one when that is lost, until it is stopped. One object is for one start.

    `report`: called with each new state, in the thread. `settled`: set when the session is open, or cannot be opened.
    `error`: why it is not open.
    """

    def __init__(self, keeper: Keeper, ttl_s: float, report: Callable[[str], None]) -> None:
        self._keeper = keeper
        self._ttl_s = ttl_s
        self._report = report
        self._stopping = threading.Event()
        self._session: Session | None = None
        self.settled = threading.Event()
        self.error: PgschedError | None = None
        self._thread = threading.Thread(target=self._run, name="pgsched-kazoo-session", daemon=True)

    @property
    def session(self) -> Session | None:
        """The session, if one is open."""
        session = self._session
        return None if session is None or session.lost is not None else session

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end, and wait for that, unless it is the caller."""
        self._stopping.set()
        if (session := self._session) is not None:
            session.losses.tell()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                session = self._keeper.session(self._ttl_s)
            except PgschedError as error:
                self.error = error
                if not isinstance(error, DatabaseUnreachable):
                    self.settled.set()  # no retry can help before somebody changes something
                if failures == 0:
                    logger.warning("opening the session again", error=str(error))
                failures += 1
                self._stopping.wait(min(LONGEST_BACK_OFF_S, back_off_s(failures, FIRST_BACK_OFF_S)))
            else:
                failures, self.error = 0, None
                self._follow(session)

    def _follow(self, session: Session) -> None:
        """Report how it stands with this session until it is lost."""
        pin = Place(
            session, "the client", CallWaker(lambda: None)
        )  # a session without places would end when it is idle
        self._keeper.add(pin)
        self._session = session
        state = ""
        try:
            while not self._stopping.is_set():
                present = self._state_of(session)
                if present == KazooState.LOST and state == KazooState.CONNECTED:
                    self._report(KazooState.SUSPENDED)  # Kazoo's programs expect it before LOST
                if state or present != KazooState.SUSPENDED:  # a new session is connected when it is renewed
                    self._report(present)
                    self.settled.set()
                    state = present
                if state == KazooState.LOST:
                    return
                session.losses.wait(partial(self._is_news, session, present), session.pause_s, None)
        finally:
            self._keeper.forget(pin)

    def _is_news(self, session: Session, known: str) -> bool:
        return self._stopping.is_set() or self._state_of(session) != known

    def _state_of(self, session: Session) -> str:
        if session.lost is not None:
            return KazooState.LOST
        return KazooState.CONNECTED if self._keeper.cut_off is None else KazooState.SUSPENDED
