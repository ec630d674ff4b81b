"""The heartbeat: a thread that renews every claim of a worker, by one statement each third of a lease.

It has its own thread and connection, so that a busy handler cannot cost the lease.
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
from pgsched.db.connection.failures import Reaction, back_off_s, classify, explain_error
from pgsched.db.queries.runs import workers
from pgsched.db.queries.runs.claims import HeartbeatResult, Vitals, find_cancelled, heartbeat
from pgsched.errors import PgschedError
from pgsched.worker.leases import Leases
from pgsched.worker.nudge import HeartbeatWaiter
from pgsched.worker.registration import declare_again, register_again

logger = log.get("lease")
LOOK_S = 0.8  # so that a cancel request takes effect within a second
AGAIN_S = 0.25
DECLARE_AGAIN_S = 30.0


def answer_timeouts_s(lease_s: float) -> tuple[float, float]:
    """Return the seconds until the server cancels a heartbeat, and until this process gives it up.

    An unanswered heartbeat leaves time for another on a new connection, unless the lease is shorter than 4 s.
    """
    timeout_s = max(1.0, lease_s / 4)
    return timeout_s, timeout_s * 1.2


@dataclass
class HeartbeatCalls:
    """The functions that a heartbeat calls, in its own thread.

    - `on_beat(lost, cancel)`: claims that are lost, and claims whose attempts are to be cancelled.
    - `on_fatal(error)`: no retry can help.
    - `vitals()`: returns what the heartbeat reports.
    - `on_drain(name)`: the person or role of this name asks the worker to drain.
    - `on_registered(worker_id)`: the worker has a new number.
    - `after_beat(conn)`: the database has answered.
    """

    on_claims_changed: Callable[[list[Key], frozenset[Key]], object]
    on_fatal: Callable[[PgschedError], object]
    vitals: Callable[[], Vitals]
    on_drain: Callable[[str], object] = bool
    on_registered: Callable[[int], object] = bool
    after_beat: Callable[[Connection[Any]], object] = bool


class Heartbeat(threading.Thread):
    """The thread that renews all leases every third of a lease, and looks for cancel requests in between.

    It also signs the worker off at the end, so that no late heartbeat can revive the worker's row.

    - `beaten_at`: when the database last answered a heartbeat, in monotonic seconds.
    - `declare_at`: when to declare jobs again that could not be declared, in monotonic seconds.
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
        self.nudge = HeartbeatWaiter()
        self._stopping = False
        self._last_keys: frozenset[Key] = frozenset()
        self.beaten_at = time.monotonic()
        self.declare_at = math.inf
        self._updates_jobs = True  # a later declaration also updates existing jobs

    def drain(self) -> None:
        """Report at once that this worker takes no more runs."""
        self._stopping = True
        self.nudge.beat_soon()

    def run(self) -> None:
        """Beat until stopped; report any unexpected error as fatal."""
        try:
            self._run()
        except Exception as error:  # never silent: without renewal the worker would lose every claim
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
                    self.calls.on_fatal(error if isinstance(error, PgschedError) else explain_error(error))
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
        timeout_s, within_s = answer_timeouts_s(self.leases.lease_s)
        conn = connect(self.dsn, purpose="heartbeat", timeout_s=timeout_s, settings=BY_KEY)
        expect(conn, within_s)
        return conn

    def _sign_off(self, conn: Connection[Any] | None) -> None:
        try:
            with conn or connect(self.dsn, purpose="heartbeat", timeout_s=3) as last:
                workers.stop(last, self.worker_id, self.registration.name, stopped=True)
        except (DatabaseError, PgschedError) as error:  # the leader notices the missing heartbeats anyway
            logger.warning("could not sign off", error=log.redact(str(error).strip()))

    def _beat(self, conn: Connection[Any]) -> None:
        keys = self.leases.held_keys()
        sent_at = time.monotonic()
        beat: HeartbeatResult = heartbeat(
            conn,
            self.worker_id,
            self.leases.lease_s,
            keys,
            replace(self.calls.vitals(), stopping=self._stopping),
            name=self.registration.name,
        )
        self.leases.renewed(beat.renewed, sent_at)
        self.beaten_at = time.monotonic()
        denied = [key for key in keys if key not in beat.renewed and key not in beat.unsure]
        if denied or beat.cancel:
            self.calls.on_claims_changed(denied, beat.cancel)
        self._last_keys = frozenset(keys)
        if not self._stopping:
            self._heed(conn, beat)
        self.calls.after_beat(conn)
        if time.monotonic() >= self.declare_at and not self._stopping:
            done = declare_again(conn, self.registration, update=self._updates_jobs)
            self.declare_at = math.inf if done else time.monotonic() + DECLARE_AGAIN_S

    def _heed(self, conn: Connection[Any], beat: HeartbeatResult) -> None:
        """Drain if the answer says so, and register again if the database does not know this worker.

        The database may not know it for two reasons:

        - A failover to a standby that lagged lost the row. Its number may belong to another worker now.
        - The worker was silent for so long that it counts as stopped, and its jobs with it.
        """
        if not beat.known:
            before, (self.worker_id, whole) = self.worker_id, register_again(conn, self.registration)
            if not whole and self.declare_at == math.inf:
                self.declare_at, self._updates_jobs = time.monotonic() + DECLARE_AGAIN_S, False
            self.calls.on_registered(self.worker_id)
            logger.warning(
                "registered again: the database had lost this worker, or given it up", id=self.worker_id, before=before
            )
        elif beat.drain_by is not None:
            self.calls.on_drain(beat.drain_by)

    def _look(self, conn: Connection[Any]) -> None:
        """Look between two heartbeats which claims are to be cancelled or were taken away.

        After a notification all claims are looked at, else those that were held at the last look. A notification may be
        lost, or a pooler may pass none on. The hint is reset first, because a new notification may arrive meanwhile.
        """
        began, hinted, self.nudge.hinted = time.monotonic(), self.nudge.hinted, False  # reset first
        keys = frozenset(self.leases.held_keys())
        asked = keys if hinted else keys & self._last_keys
        self._last_keys = keys
        lost, cancel = find_cancelled(conn, list(asked)) if asked else ([], frozenset())
        if lost or cancel:
            self.calls.on_claims_changed(lost, cancel)
        if hinted:
            self.nudge.looked(began)
