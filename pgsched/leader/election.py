"""One leader at a time: a term names it, and its row, locked in every transaction of the leader, proves it.

A candidate asks for a session lock about once a second and never waits for it in the server; one of many asks less
often (`pace_s`). The leader's session times out by itself when its process freezes, so that the others need not wait
for TCP to notice. The lock is only the cheap way to wait, for anybody may take it: where one who does not lead has it,
a candidate stands when the last term has not been seen for GONE_S. Behind a pooler that lends sessions for a
transaction there is no session to hold a lock: a candidate stands when the last term has resigned or has not been seen
for as long as such a session would have lasted.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pgsched import log
from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import BY_INDEX, Connection, DatabaseError, connect
from pgsched.db.connection.failures import (
    UNFORESEEN,
    Reaction,
    back_off_s,
    classify,
    explain,
    notifications_full,
)
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import leadership, set_aside
from pgsched.db.queries.leader.leadership import NotLeading
from pgsched.errors import PgschedError
from pgsched.leader.alerting.incidents import Watch
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.metrics import LeaderMeter
from pgsched.leader.reaper import Search
from pgsched.leader.term import Term
from pgsched.leader.timing.periodic import Sleep

logger = log.get("leader")

GONE_S = 3.0  # a term that was begun without the session lock and was not seen for so long has ended
LOCK_TIMEOUT_MS = "300"  # who has locked what it needs may never let go: no slot is decided meanwhile
CALM_S = 60.0  # a session that went well for so long was no failure: the errors before it count no more
HEED_S = 0.05  # for so long after a try a candidate heeds no notification: anybody may send any
FEW = 20  # candidates that try as often as they are told
SELDOM = 3.0  # times that pause at most: most candidates may have gone at the same moment as the leader
# What a leader outlasts on the connection that it has, and after how many seconds it asks again at first: a new one
# would fare no better, and reap nothing for a lease.
OUTLASTS = {
    Reaction.BACK_OFF: ("the database is short of something", 1.0),
    Reaction.RETRY: ("conflict, trying again", 0.1),
}
FIRST_LOOK_S = 2.0  # all that is queued is read for it, and a leader often begins when all else does
RECOUNT = 64  # tries after which a candidate counts again at the latest; at first it does so after 1, 2, 4 and so on


def pace_s(settings: LeaderSettings, candidates: int) -> float:
    """Seconds between two tries of a candidate: up to three times as long where there are more than `FEW`."""
    seconds = settings.election_every_s * min(max(candidates / FEW, 1.0), SELDOM)
    # the server ends the session of a candidate that asks too seldom, as it would a frozen one's
    return min(seconds, settings.session_timeout_s / 2)


class Leader:
    """A candidate for the leader's duties; `run` blocks until `stop` is called.

    `on_fatal` is told of an error that no retry can mend (a missing grant, a wrong schema); `run` then ends.
    """

    def __init__(
        self, dsn: str, settings: LeaderSettings, holder: str, on_fatal: Callable[[PgschedError], object] | None = None
    ) -> None:
        self.dsn = dsn
        self.settings = settings
        self.holder = holder
        self.on_fatal = on_fatal
        self.term: int | None = None
        self._broken_off = 0  # rounds in a row
        self._locked = False  # does the session hold the lock?
        self._contested = False  # does somebody who does not lead?
        self._cost: tuple[str, str, bool] | None = None  # the duty that the last session was lost in, and how
        self.counted: LeaderMeter | None = None
        self.nudge: Callable[[], object] = bool  # there may be alerts to tell
        self.unled: Callable[[Connection[Any]], object] = bool  # called now and then while nobody leads
        self.heard_at: float | None = None  # when the database last answered
        self._stop = threading.Event()
        # written from a signal handler; an Event's wait could be interrupted by the very handler that sets it
        self._wake_read, self._wake_write = os.pipe()
        weakref.finalize(self, os.close, self._wake_read)
        weakref.finalize(self, os.close, self._wake_write)

    def stop(self) -> None:
        """Resign and end `run`; callable from any thread and from signal handlers."""
        self._stop.set()
        os.write(self._wake_write, b"x")

    def run(self) -> None:
        """Campaign, lead, and reconnect for as long as the process lives."""
        failures, bugs, began = 0, 0, 0.0
        while not self._stop.is_set():
            try:
                with self.session() as conn:
                    failures, began = 0, time.monotonic()
                    self._note_cost(conn)
                    self._campaign(conn)
                    bugs = 0
            except (DatabaseError, PgschedError) as error:
                if classify(error) is Reaction.CONFIGURATION:
                    self._give_up(error)
                    return
                failures += 1
                delay = back_off_s(failures, 0.1)
                logger.warning("connection lost", error=log.redact(str(error)), retry_in_s=round(delay, 2))
                self.pause(None, delay)
            except Exception as error:  # outside of any duty
                bugs = 0 if time.monotonic() > began + CALM_S else bugs
                logger.error("leader failed", exc_info=bugs == 0, error=repr(error))
                bugs += 1
                if bugs >= UNFORESEEN:  # a process that can no longer lead must not look healthy
                    self._give_up(PgschedError(f"leader failed: {error!r}"))
                    return
                self.pause(None, back_off_s(bugs, 0.1))

    def _note_cost(self, conn: Connection[Any]) -> None:
        """Record the duty in which the last session was lost. If the session is lost in the same duty again, every
        leader leaves that duty undone for some minutes: see `set_aside.session_lost`."""
        if self._cost is not None:
            name, error, went_through = self._cost
            with contextlib.suppress(DatabaseError):  # a candidate may lack the right
                set_aside.session_lost(conn, name, error, went_through=went_through)
            if not conn.closed:  # else the next session writes it
                self._cost = None

    def _give_up(self, error: DatabaseError | PgschedError) -> None:
        reason = error if isinstance(error, PgschedError) else explain(error)
        logger.error("cannot lead", error=str(reason))
        if self.on_fatal is not None:
            self.on_fatal(reason)

    @contextmanager
    def session(self) -> Iterator[Connection[Any]]:
        """A session that the server ends by itself when this process stops talking to it."""
        timeout_ms = str(int(self.settings.session_timeout_s * 1000))
        ends = {"idle_session_timeout": timeout_ms, "idle_in_transaction_session_timeout": timeout_ms}
        settings = ends | BY_INDEX | {"lock_timeout": LOCK_TIMEOUT_MS}
        conn = connect(self.dsn, purpose="leader", timeout_s=60, settings=settings)
        try:
            if not is_shared(conn):
                conn.execute("LISTEN pgsched_election")
            yield conn
        finally:
            self._leads(None)
            conn.close()

    def _campaign(self, conn: Connection[Any]) -> None:
        tries, recount, seconds = 0, 0, 0.0
        while not self._stop.is_set():
            if self._may_stand(conn):
                self._lead(conn)
                return
            if tries == recount:
                seconds = pace_s(self.settings, leadership.candidates(conn))
                recount += min(max(tries, 1), RECOUNT)
            tries += 1
            self.pause(conn, seconds, HEED_S)

    def _may_stand(self, conn: Connection[Any]) -> bool:
        self._locked = not is_shared(conn) and leadership.try_lead(conn)
        if not (self._locked or is_shared(conn)):
            # twice in a row: another candidate may have got the lock this instant
            before, self._contested = self._contested, leadership.contested(conn, GONE_S)
            return before and self._contested
        if vacant := self._vacant(conn):
            return vacant
        if self._locked:  # who leads does so without the lock
            leadership.unlock(conn)
            self._locked = False
        return False

    def _vacant(self, conn: Connection[Any]) -> bool:
        gone_s = self.settings.session_timeout_s if is_shared(conn) else GONE_S
        return leadership.vacant(conn, gone_s, locked=self._locked)

    def _lead(self, conn: Connection[Any]) -> None:
        number, grace_s = self._begin_term(conn)
        if number is None:
            return
        self._leads(number)
        logger.info("leading", term=number, reaps_in_s=round(grace_s, 1))
        if not is_shared(conn):
            conn.execute("LISTEN pgsched_leader")
        term = Term(conn, number, self.settings, locked=self._locked, meter=self.counted)
        search = Search(self.dsn, time.monotonic() + FIRST_LOOK_S)
        loop = LeaderLoop(term, time.monotonic() + grace_s, search=search, watch=Watch(self._nudged))
        sleep = Sleep()
        term.set_aside.load(conn)
        try:
            while not self._stop.is_set():
                self._round(conn, loop, sleep)
            term.resign()
            if not is_shared(conn):
                leadership.wake_candidates(conn, locked=self._locked)
        except NotLeading as reason:
            # closing the session gives the lock back
            logger.warning("leadership lost", term=number, reason=str(reason))
        except (DatabaseError, PgschedError):
            if term.guard.cost is not None:
                self._cost = term.guard.cost
                logger.warning("the session was lost in a duty", duty=self._cost[0], error=self._cost[1])
            raise

    def _round(self, conn: Connection[Any], loop: LeaderLoop, sleep: Sleep) -> None:
        """What is due, and a pause. A server that has no room, or a table that somebody has locked, keeps its leader,
        who asks less and less often."""
        try:
            seconds = loop.run_once()
            self._broken_off = 0
        except NotLeading:
            # A candidate may be looking behind the fence just now: the term tells who leads.
            if leadership.newest(conn) != loop.term.number:
                raise
            self.pause(conn, 0.1)
        except DatabaseError as error:
            reaction = classify(error)
            if reaction not in OUTLASTS or conn.closed:
                raise
            self._broken_off += 1
            what, first_s = OUTLASTS[reaction]
            delay = min(back_off_s(self._broken_off, first_s), self.settings.session_timeout_s / 2)
            logger.warning(what, error=log.redact(str(error)), retry_in_s=round(delay, 2))
            if notifications_full(error):
                leadership.clear_notifications(conn)
            self.pause(None, delay)
        else:
            deaf_s = sleep.deaf_s(useful=loop.useful)
            if self.pause(conn, sleep.pause_s(conn, seconds), deaf_s):
                sleep.woken()

    def _nudged(self) -> None:
        self.nudge()

    def _leads(self, term: int | None) -> None:
        self.term = term
        if self.counted is not None:
            self.counted.term = term

    def _begin_term(self, conn: Connection[Any]) -> tuple[int | None, float]:
        """A new term, once the fence is free: a former leader may be inside its last transaction."""
        while not self._stop.is_set():
            try:
                if not self._vacant(conn):
                    break  # another candidate was first
                with conn.transaction():
                    first = leadership.fence(conn, None) is None
                    if not self._vacant(conn):
                        break
                    return leadership.elect(conn, self.holder, locked=self._locked, first=first)
            except NotLeading:
                self.pause(conn, 0.2)
        return None, 0.0

    def pause(self, conn: Connection[Any] | None, seconds: float, deaf_s: float = 0.0) -> bool:
        """Wait for a notification, a stop, or so many seconds; did a notification come? For `deaf_s` none is heeded."""
        if conn is not None:
            self.heard_at = time.monotonic()
        if self._stop.is_set() or seconds <= 0:
            return False
        if deaf_s > 0:
            self.pause(None, min(deaf_s, seconds))
            return self.pause(conn, seconds - deaf_s)
        # one may have come with the answer to a statement: then the socket has nothing to read any more
        if conn is not None and list(conn.notifies(timeout=0)):
            return True
        ready = select.poll()  # not select(): a worker with many children has descriptors beyond 1023
        ready.register(self._wake_read, select.POLLIN)
        if conn is not None:
            ready.register(conn.fileno(), select.POLLIN)
        ready.poll(seconds * 1000)
        return conn is not None and bool(list(conn.notifies(timeout=0)))
