"""The heartbeat: each third of a lease one statement renews every claim of a worker.

It has a thread and a connection of its own, so that a busy handler cannot cost the lease.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from pgsched import log
from pgsched.core.model import Key
from pgsched.db.connection.bounded import expect
from pgsched.db.connection.connect import BY_KEY, Connection, DatabaseError, connect
from pgsched.db.connection.failures import Reaction, back_off_s, classify, explain
from pgsched.db.queries.runs import workers
from pgsched.db.queries.runs.claims import Beat, cancel_asked, heartbeat
from pgsched.errors import PgschedError
from pgsched.worker.leases import Leases
from pgsched.worker.registration import register_again

logger = log.get("lease")
LOOK_S = 0.8  # so that a cancel request is heard within a second
AGAIN_S = 0.25


def patience_s(lease_s: float) -> tuple[float, float]:
    """Seconds until the server gives a beat up, and until this process does. A beat that nobody answers leaves time for
    another on a new connection, unless the lease is shorter than 4 s."""
    timeout_s = max(1.0, lease_s / 4)
    return timeout_s, timeout_s * 1.2


class Heartbeat(threading.Thread):
    """Renews all leases every third of a lease. Calls back (from its thread) with claims lost or to be cancelled.

    It also signs the worker off when it ends, so that no late heartbeat can bring the worker's row back to life.
    """

    def __init__(
        self,
        dsn: str,
        worker_id: int,
        registration: workers.Registration,
        leases: Leases,
        on_beat: Callable[[list[Key], frozenset[Key]], object],
        on_fatal: Callable[[PgschedError], object],
        abandoned: Callable[[], int],
        blocked: Callable[[], tuple[float, str] | None] = lambda: None,
    ) -> None:
        super().__init__(name="pgsched-heartbeat", daemon=True)
        self.dsn = dsn
        self.worker_id = worker_id
        self.registration = registration
        self.on_registered: Callable[[int], object] = bool
        self.leases = leases
        self.on_beat = on_beat
        self.on_fatal = on_fatal
        self.abandoned = abandoned
        self.blocked = blocked
        self.on_drain: Callable[[str], object] = bool
        self._stopping = self._stopped = False
        self._nudge = threading.Event()
        self._looked_at: frozenset[Key] = frozenset()
        self.beaten_at = time.monotonic()  # when the database last answered a beat
        self.after_beat: Callable[[Connection[Any]], object] = bool

    def drain(self) -> None:
        """Let everybody see at once that this worker takes no more."""
        self._stopping = True
        self._nudge.set()

    def beat_soon(self) -> None:
        """There is something to say of this worker."""
        self._nudge.set()

    def stop(self) -> None:
        """End the thread after the beat in progress."""
        self._stopped = True
        self._nudge.set()

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # never silent: without renewal every claim would be lost again and again
            logger.error("heartbeat failed", exc_info=True)
            self.on_fatal(PgschedError(f"heartbeat failed: {error!r}"))

    def _run(self) -> None:
        period = self.leases.lease_s / 3
        conn: Connection[Any] | None = None
        beat_at, failures = 0.0, 0
        while not self._stopped:
            try:
                conn = conn or self._connect()
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + period
                    self._beat(conn)
                else:
                    self._look(conn)
                failures, wait = 0, max(0.0, min(LOOK_S, beat_at - time.monotonic()))
            except (DatabaseError, PgschedError) as error:
                reaction = classify(error)
                if reaction is Reaction.CONFIGURATION:
                    self.on_fatal(error if isinstance(error, PgschedError) else explain(error))
                    return
                failures += 1
                beat_at, wait = 0.0, min(period / 2, back_off_s(failures, AGAIN_S))
                logger.warning("heartbeat failed", error=log.redact(str(error).strip()), retry_in_s=round(wait, 2))
                if conn is not None and reaction is not Reaction.RETRY:
                    conn.close()
                    conn = None
            if self._nudge.wait(wait):
                self._nudge.clear()
                beat_at = 0.0
        self._sign_off(conn)

    def _connect(self) -> Connection[Any]:
        timeout_s, within_s = patience_s(self.leases.lease_s)
        conn = connect(self.dsn, purpose="heartbeat", timeout_s=timeout_s, settings=BY_KEY)
        expect(conn, within_s)
        return conn

    def _sign_off(self, conn: Connection[Any] | None) -> None:
        try:
            with conn or connect(self.dsn, purpose="heartbeat", timeout_s=3) as last:
                workers.stop(last, self.worker_id, self.registration.name, stopped=True)
        except (DatabaseError, PgschedError) as error:  # the leader notices by the missing heartbeats anyway
            logger.warning("could not sign off", error=log.redact(str(error).strip()))

    def _beat(self, conn: Connection[Any]) -> None:
        held = self.leases.held()
        sent_at = time.monotonic()
        beat: Beat = heartbeat(
            conn,
            self.worker_id,
            self.leases.lease_s,
            held,
            self.abandoned(),
            name=self.registration.name,
            stopping=self._stopping,
            blocked=self.blocked(),
        )
        self.leases.renewed(beat.kept, sent_at)
        self.beaten_at = time.monotonic()
        denied = [key for key in held if key not in beat.kept and key not in beat.unsure]
        if denied or beat.cancel:
            self.on_beat(denied, beat.cancel)
        self._looked_at = frozenset(held)
        if not self._stopping:
            self._heed(conn, beat)
        self.after_beat(conn)

    def _heed(self, conn: Connection[Any], beat: Beat) -> None:
        """Is this worker to drain? And does the database know it at all? A failover to a standby that lagged may have
        lost its row, and given its number to another worker: nobody would see that this one is there. Or it was silent
        for so long that it was given up, and its jobs with it."""
        if not beat.known:
            self.worker_id, before = register_again(conn, self.registration), self.worker_id
            self.on_registered(self.worker_id)
            logger.warning(
                "registered again: the database had lost this worker, or given it up", id=self.worker_id, before=before
            )
        elif beat.drain_by is not None:
            self.on_drain(beat.drain_by)

    def _look(self, conn: Connection[Any]) -> None:
        """Between two beats: which of the claims that last for a while are to be cancelled? The notification may have
        been lost, or not be there at all behind a pooler."""
        held = frozenset(self.leases.held())
        lasting = held & self._looked_at
        self._looked_at = held
        if lasting and (cancel := cancel_asked(conn, list(lasting))):
            self.on_beat([], cancel)
