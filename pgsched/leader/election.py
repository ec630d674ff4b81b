"""Leader election: one leader at a time, named by a term; it locks the term's row in each of its transactions.

If the leader's process freezes, the server ends its session by a timeout. So the candidates need not wait for TCP to
notice.
"""

from __future__ import annotations

import contextlib
import time
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
    explain_error,
    notifications_full,
)
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import leadership, set_aside
from pgsched.db.queries.leader.leadership import NotLeading
from pgsched.errors import PgschedError
from pgsched.leader.alerting.incidents import IncidentWatch
from pgsched.leader.candidacy import Candidacy
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.metrics import LeaderMeter
from pgsched.leader.reaper import LeaseSearch
from pgsched.leader.term import Term
from pgsched.leader.timing.pauses import Pauses
from pgsched.leader.timing.periodic import Sleep

logger = log.get("leader")

LOCK_TIMEOUT_MS = "300"  # a lock that the leader needs may never be released, and no slot is decided meanwhile
ERRORS_RESET_S = 60.0  # after a session of this length, unforeseen errors are counted anew
# Errors after which a leader keeps its connection, with the seconds before its first retry. A new connection would not
# help, and a new term reaps nothing for a lease.
SURVIVED_REACTIONS = {
    Reaction.BACK_OFF: ("the database is short of something", 1.0),
    Reaction.RETRY: ("conflict, trying again", 0.1),
}
FIRST_LOOK_S = 2.0  # before the first search for leases: it reads all queued runs, and all processes may be starting


class Leader:
    """A candidate for the leader's duties; `run` blocks until `stop` is called.

    `on_fatal`: called with an error that no retry can mend (a missing grant, a wrong schema); `run` then ends.
    """

    def __init__(
        self, dsn: str, settings: LeaderSettings, holder: str, on_fatal: Callable[[PgschedError], object] | None = None
    ) -> None:
        self.dsn = dsn
        self.settings = settings
        self.holder = holder
        self.on_fatal = on_fatal
        self.term: int | None = None
        self.pauses = Pauses()
        self.meter: LeaderMeter | None = None
        self.on_alerts: Callable[[], object] = bool  # called when there may be alerts to deliver
        self.on_no_leader: Callable[[Connection[Any]], object] = bool  # called now and then while no process leads
        self._failed_rounds = 0  # failed rounds in a row
        # the duty in which the last session was lost: DutyGuard.session_lost_in
        self._session_lost_in: tuple[str, str, bool] | None = None

    @property
    def heard_at(self) -> float | None:
        """Monotonic instant at which the database last answered, None before the first time."""
        return self.pauses.answered_at

    def stop(self) -> None:
        """Resign and end `run`; callable from any thread and from signal handlers."""
        self.pauses.stop()

    def run(self) -> None:
        """Stand for election, lead, and reconnect for as long as the process lives."""
        failures, bugs, began = 0, 0, 0.0
        while not self.pauses.stopped:
            try:
                with self.session() as conn:
                    failures, began = 0, time.monotonic()
                    self._note_cost(conn)
                    candidacy = Candidacy(conn, self.settings, self.pauses)
                    if candidacy.wait():
                        self._lead(conn, candidacy)
                    bugs = 0
            except (DatabaseError, PgschedError) as error:
                if classify(error) is Reaction.CONFIGURATION:
                    self._give_up(error)
                    return
                failures += 1
                delay = back_off_s(failures, 0.1)
                logger.warning("connection lost", error=log.redact(str(error)), retry_in_s=round(delay, 2))
                self.pauses.pause(None, delay)
            except Exception as error:  # an error outside of any duty
                bugs = 0 if time.monotonic() > began + ERRORS_RESET_S else bugs
                logger.error("leader failed", exc_info=bugs == 0, error=repr(error))
                bugs += 1
                if bugs >= UNFORESEEN:  # a process that can no longer lead must not look healthy
                    self._give_up(PgschedError(f"leader failed: {error!r}"))
                    return
                self.pauses.pause(None, back_off_s(bugs, 0.1))

    def _note_cost(self, conn: Connection[Any]) -> None:
        """Record the duty in which the last session was lost.

        If the session is lost in the same duty again, every leader skips that duty for some minutes
        (`set_aside.session_lost`).
        """
        if self._session_lost_in is not None:
            name, error, went_through = self._session_lost_in
            with contextlib.suppress(DatabaseError):  # a candidate may lack the grant
                set_aside.session_lost(conn, name, error, went_through=went_through)
            if not conn.closed:  # else the next session writes it
                self._session_lost_in = None

    def _give_up(self, error: DatabaseError | PgschedError) -> None:
        """Report an error that no retry can mend."""
        reason = error if isinstance(error, PgschedError) else explain_error(error)
        logger.error("cannot lead", error=str(reason))
        if self.on_fatal is not None:
            self.on_fatal(reason)

    @contextmanager
    def session(self) -> Iterator[Connection[Any]]:
        """Open a session that the server ends by itself when this process stops talking to it."""
        timeout_ms = str(int(self.settings.session_timeout_s * 1000))
        ends = {"idle_session_timeout": timeout_ms, "idle_in_transaction_session_timeout": timeout_ms}
        settings = ends | BY_INDEX | {"lock_timeout": LOCK_TIMEOUT_MS}
        conn = connect(self.dsn, purpose="leader", timeout_s=60, settings=settings)
        try:
            if not is_shared(conn):
                conn.execute("LISTEN pgsched_election")
            yield conn
        finally:
            self._set_term(None)
            conn.close()

    def _lead(self, conn: Connection[Any], candidacy: Candidacy) -> None:
        """Begin a term, and do its rounds until the term or the process ends."""
        number, grace_s = candidacy.begin_term(self.holder)
        if number is None:
            return
        self._set_term(number)
        logger.info("leading", term=number, reaps_in_s=round(grace_s, 1))
        if not is_shared(conn):
            conn.execute("LISTEN pgsched_leader")
        term = Term(conn, number, self.settings, locked=candidacy.locked, meter=self.meter)
        search = LeaseSearch(self.dsn, time.monotonic() + FIRST_LOOK_S)
        loop = LeaderLoop(term, time.monotonic() + grace_s, search=search, watch=IncidentWatch(self._nudged))
        sleep = Sleep()
        term.set_aside.load(conn)
        try:
            while not self.pauses.stopped:
                self._round(conn, loop, sleep)
            term.resign()
            if not is_shared(conn):
                leadership.wake_candidates(conn, locked=candidacy.locked)
        except NotLeading as reason:
            # closing the session releases the lock
            logger.warning("leadership lost", term=number, reason=str(reason))
        except (DatabaseError, PgschedError):
            if term.guard.session_lost_in is not None:
                self._session_lost_in = term.guard.session_lost_in
                logger.warning(
                    "the session was lost in a duty", duty=self._session_lost_in[0], error=self._session_lost_in[1]
                )
            raise

    def _round(self, conn: Connection[Any], loop: LeaderLoop, sleep: Sleep) -> None:
        """Do one round of the loop, and pause.

        The leader keeps its connection where the server lacks a resource or a table is locked, and tries less and less
        often.
        """
        try:
            seconds = loop.run_once()
            self._failed_rounds = 0
        except NotLeading:
            # A candidate may hold the fence for a moment: only a newer term means that another process leads.
            if leadership.newest_term(conn) != loop.term.number:
                raise
            self.pauses.pause(conn, 0.1)
        except DatabaseError as error:
            reaction = classify(error)
            if reaction not in SURVIVED_REACTIONS or conn.closed:
                raise
            self._failed_rounds += 1
            what, first_s = SURVIVED_REACTIONS[reaction]
            delay = min(back_off_s(self._failed_rounds, first_s), self.settings.session_timeout_s / 2)
            logger.warning(what, error=log.redact(str(error)), retry_in_s=round(delay, 2))
            if notifications_full(error):
                leadership.clear_notifications(conn)
            self.pauses.pause(None, delay)
        else:
            deaf_s = sleep.deaf_s(useful=loop.useful)
            if self.pauses.pause(conn, sleep.pause_s(conn, seconds), deaf_s):
                sleep.note_notification()

    def _nudged(self) -> None:
        self.on_alerts()

    def _set_term(self, term: int | None) -> None:
        self.term = term
        if self.meter is not None:
            self.meter.term = term
