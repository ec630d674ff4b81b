"""Find incidents of watched jobs: the leader looks every few seconds, a worker while there is no leader.

Invariant: a look is one statement for many jobs, and changes only incidents. Delivering them is the courier's part.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.queries.leader import alerts
from pgsched.errors import PgschedError

logger = log.get("alerts")
EVERY_S = 5.0
LOOK_S = 0.2  # intended time of a look at most
FEW = 20  # jobs in the first look
UNWATCHED_S = 10.0  # pause while no job is watched
UNLED_S = 20.0  # a worker checks this often whether a process leads
CANDIDATE_S = 60.0  # the same for a worker that would lead itself
GONE_S = 15.0  # no process leads if the last term was not seen for this long
Transaction = Callable[[], AbstractContextManager[Connection[Any]]]


class IncidentWatch:
    """Position of a round over the watched jobs."""

    def __init__(self, nudge: Callable[[], object] = bool) -> None:
        self._nudge = nudge
        self._after = 0
        self._jobs = min(alerts.JOBS, FEW)
        self._refused: dict[int, str] = {}  # why jobs could not be paused, as it was logged
        self._begins = True  # nudge once: the database does not show which alerts this process's sinks missed

    def look(self, conn: Connection[Any], begin: Transaction, *, leads: bool) -> float:
        """Look at the next jobs; return the seconds until there is more to look at.

        `leads`: this process leads, so an incident about a missing leader is over.
        """
        work = alerts.look_for_work(conn)
        if work.pending or self._begins:
            self._nudge()
        self._begins = False
        if not (work.watched or work.dead_runs or (work.pausing and leads)):
            self._after = 0
            return UNWATCHED_S
        began, changed = time.monotonic(), False
        with begin() as proved:
            if not self._after:
                changed = self._look_once(proved, work, leads=leads)
            found = alerts.check_watched_jobs(proved, self._after, self._jobs)
        self._after = found.last_id or 0
        self._pace(time.monotonic() - began)
        if found.changes or changed:
            self._nudge()
        return EVERY_S if found.last_id is None else 0.0

    def _look_once(self, conn: Connection[Any], work: alerts.AlertWork, *, leads: bool) -> bool:
        """Do what a round does once, before it looks at jobs; return whether an incident was opened or closed.

        Only the leader pauses jobs, because the others have no right to.
        """
        changed = work.dead_runs and alerts.watch_dead_runs(conn) is not None
        if leads:
            for job in alerts.pause_failing_jobs(conn) if work.pausing else ():
                if job["error"] is None:
                    logger.warning("a job has paused itself", job=job["job"], reason=job["reason"])
                    changed = True
                elif self._refused.get(job["id"]) != job["error"]:  # logged once, not in each round
                    logger.error("a job fails, and cannot be paused", job=job["job"], error=job["error"])
                    self._refused[job["id"]] = job["error"]
            alerts.close_no_leader(conn)
        return changed

    def _pace(self, took_s: float) -> None:
        """Adapt the number of jobs to the time of the last look: the leader has other duties."""
        if took_s > LOOK_S:
            self._jobs = max(1, int(self._jobs * LOOK_S / took_s))
        elif took_s < LOOK_S / 4:
            self._jobs = min(alerts.JOBS, 2 * self._jobs)


class LeaderlessWatch(threading.Thread):
    """A worker's thread: while no process leads, it opens an incident about that, and watches the jobs.

    `stands`: this process would lead if it could.
    `leads`: returns whether this process leads.
    `look`: a further check to make while no process leads.
    """

    def __init__(
        self,
        dsn: str,
        nudge: Callable[[], object],
        stands: bool = False,
        leads: Callable[[], bool] = bool,
        look: Callable[[Connection[Any]], object] = bool,
    ) -> None:
        super().__init__(name="pgsched-unled", daemon=True)
        self._dsn = dsn
        self._nudge = nudge
        self._every_s = CANDIDATE_S if stands else UNLED_S
        self._leads = leads
        self._look = look
        self._ending = threading.Event()

    def stop(self) -> None:
        """End soon."""
        self._ending.set()

    def run(self) -> None:
        """Check now and then whether a process leads; if none does, watch."""
        while not self._ending.wait(self._every_s * (0.75 + random.random() / 2)):
            if self._leads():
                continue
            try:
                with connect(self._dsn, purpose="alerts") as conn:
                    self.watch(conn)
            except (DatabaseError, PgschedError) as error:
                logger.warning("cannot see whether a process leads", error=log.redact(str(error).strip()))
            except Exception:
                logger.error("cannot see whether a process leads", exc_info=True)

    def watch(self, conn: Connection[Any]) -> None:
        """Watch the jobs for as long as no process leads."""
        mine, look_at, others_at = IncidentWatch(self._nudge), 0.0, 0.0
        while not self._leads() and alerts.open_no_leader(conn, GONE_S) and not self._ending.is_set():
            self._nudge()
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + mine.look(conn, lambda: nullcontext(conn), leads=False)
            if time.monotonic() >= others_at:
                self._look(conn)
                others_at = time.monotonic() + EVERY_S
            self._ending.wait(min(EVERY_S, max(0.0, look_at - time.monotonic())))
