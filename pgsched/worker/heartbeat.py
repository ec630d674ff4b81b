"""The heartbeat: each third of a lease one statement renews every claim of a worker.

It has a thread and a connection of its own, so that a busy handler cannot cost the lease.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pgsched import log
from pgsched.core.model import Key
from pgsched.db.connection.bounded import expect
from pgsched.db.connection.connect import BY_KEY, Connection, DatabaseError, connect
from pgsched.db.connection.failures import Reaction, back_off_s, classify, explain
from pgsched.db.queries.runs import workers
from pgsched.db.queries.runs.claims import Beat, Vitals, cancel_asked, heartbeat
from pgsched.errors import PgschedError
from pgsched.worker.leases import Leases
from pgsched.worker.nudge import Nudge
from pgsched.worker.registration import declare_again, register_again

logger = log.get("lease")
LOOK_S = 0.8  # so that a cancel request is heard within a second
AGAIN_S = 0.25
DECLARE_AGAIN_S = 30.0


def patience_s(lease_s: float) -> tuple[float, float]:
    """Seconds until the server gives a beat up, and until this process does. A beat that nobody answers leaves time for
    another on a new connection, unless the lease is shorter than 4 s."""
    timeout_s = max(1.0, lease_s / 4)
    return timeout_s, timeout_s * 1.2


@dataclass
class HeartbeatCalls:
    """What a heartbeat calls, from its own thread."""

    on_beat: Callable[[list[Key], frozenset[Key]], object]  # these claims are lost, and these are to be cancelled
    on_fatal: Callable[[PgschedError], object]
    vitals: Callable[[], Vitals]
    on_drain: Callable[[str], object] = bool  # somebody, named, asks this worker to drain
    on_registered: Callable[[int], object] = bool  # the worker has another number now
    after_beat: Callable[[Connection[Any]], object] = bool


class Heartbeat(threading.Thread):
    """Renews all leases every third of a lease.

    It also signs the worker off when it ends, so that no late heartbeat can bring the worker's row back to life.
    """

    def __init__(
        self,
        dsn: str,
        worker_id: int,
        registration: workers.Registration,
        leases: Leases,
        calls: HeartbeatCalls,
    ) -> None:
        super().__init__(name="pgsched-heartbeat", daemon=True)
        self.dsn = dsn
        self.worker_id = worker_id
        self.registration = registration
        self.leases = leases
        self.calls = calls
        self.nudge = Nudge()
        self._stopping = False
        self._looked_at: frozenset[Key] = frozenset()
        self.beaten_at = time.monotonic()  # when the database last answered a beat
        self.declare_at = math.inf  # monotonic: what the code declares could not be declared yet
        self._updates = True  # and jobs that are there already are to be as it says

    def drain(self) -> None:
        """Let everybody see at once that this worker takes no more."""
        self._stopping = True
        self.nudge.beat_soon()

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # never silent: without renewal every claim would be lost again and again
            logger.error("heartbeat failed", exc_info=True)
            self.calls.on_fatal(PgschedError(f"heartbeat failed: {error!r}"))

    def _run(self) -> None:
        period = self.leases.lease_s / 3
        conn: Connection[Any] | None = None
        beat_at, look_at, failures = 0.0, 0.0, 0
        while not self.nudge.stopped:
            try:
                conn = conn or self._connect()
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + period
                    self._beat(conn)
                    look_at = time.monotonic() + LOOK_S
                elif self.nudge.hinted or time.monotonic() >= look_at:
                    self._look(conn)
                    look_at = time.monotonic() + LOOK_S
                failures, wait = 0, max(0.0, min(look_at, beat_at) - time.monotonic())
            except (DatabaseError, PgschedError) as error:
                reaction = classify(error)
                if reaction is Reaction.CONFIGURATION:
                    self.calls.on_fatal(error if isinstance(error, PgschedError) else explain(error))
                    return
                failures += 1
                beat_at, wait = 0.0, min(period / 2, back_off_s(failures, AGAIN_S))
                logger.warning("heartbeat failed", error=log.redact(str(error).strip()), retry_in_s=round(wait, 2))
                if conn is not None and reaction is not Reaction.RETRY:
                    conn.close()
                    conn = None
            if self.nudge.wait(wait, heeding=not failures):
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
            replace(self.calls.vitals(), stopping=self._stopping),
            name=self.registration.name,
        )
        self.leases.renewed(beat.kept, sent_at)
        self.beaten_at = time.monotonic()
        denied = [key for key in held if key not in beat.kept and key not in beat.unsure]
        if denied or beat.cancel:
            self.calls.on_beat(denied, beat.cancel)
        self._looked_at = frozenset(held)
        if not self._stopping:
            self._heed(conn, beat)
        self.calls.after_beat(conn)
        if time.monotonic() >= self.declare_at and not self._stopping:
            done = declare_again(conn, self.registration, update=self._updates)
            self.declare_at = math.inf if done else time.monotonic() + DECLARE_AGAIN_S

    def _heed(self, conn: Connection[Any], beat: Beat) -> None:
        """Is this worker to drain? And does the database know it at all? A failover to a standby that lagged may have
        lost its row, and given its number to another worker: nobody would see that this one is there. Or it was silent
        for so long that it was given up, and its jobs with it."""
        if not beat.known:
            before, (self.worker_id, whole) = self.worker_id, register_again(conn, self.registration)
            if not whole and self.declare_at == math.inf:
                self.declare_at, self._updates = time.monotonic() + DECLARE_AGAIN_S, False
            self.calls.on_registered(self.worker_id)
            logger.warning(
                "registered again: the database had lost this worker, or given it up", id=self.worker_id, before=before
            )
        elif beat.drain_by is not None:
            self.calls.on_drain(beat.drain_by)

    def _look(self, conn: Connection[Any]) -> None:
        """Between two beats: which of the claims are to be cancelled, or were taken away? Of all, where a notification
        said so; else of those that last for a while: it may have been lost, or none passes a pooler."""
        began, hinted, self.nudge.hinted = time.monotonic(), self.nudge.hinted, False  # first: others may ask again
        held = frozenset(self.leases.held())
        asked = held if hinted else held & self._looked_at
        self._looked_at = held
        lost, cancel = cancel_asked(conn, list(asked)) if asked else ([], frozenset())
        if lost or cancel:
            self.calls.on_beat(lost, cancel)
        if hinted:
            self.nudge.looked(began)
