"""Prepare a batch of slots shortly before its instant, and commit it at the instant itself.

Otherwise every slot would start later by the time that it takes to write the rows of all of them.

Invariant: no other session sees a prepared row before its instant, and all that a batch was prepared for still holds
when it commits.
"""

from __future__ import annotations

import time
from datetime import datetime
from time import sleep
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import ticks
from pgsched.leader.ticker import TickResult

FIRST_S = 0.01  # lead of the first batch
SHORTEST_S = 0.003
LONGEST_S = 0.25  # jobs are locked for this long, and an edit of one waits
MARGIN = 1.25  # lead as a multiple of the time that a batch took
SHRINK_SHARE = 0.1  # share of the difference by which a lead shrinks after a quicker batch


class NotAsPrepared(Exception):
    """Raised when a prepared batch no longer fits at its instant: it is rolled back, and decided on time instead."""


class PreparationLead:
    """How long before its instant a batch is prepared: as long as batches take. All times are monotonic seconds."""

    def __init__(self) -> None:
        self._s = FIRST_S
        self._off_until = 0.0

    def s(self, now: float) -> float:
        """Return the seconds of lead for the next batch; 0 while nothing is prepared."""
        return 0.0 if now < self._off_until else self._s

    def took(self, seconds: float) -> None:
        """Adapt the lead to a batch that took `seconds` to prepare.

        The lead grows at once, because a short lead makes all of a batch late. It shrinks slowly.
        """
        seen = MARGIN * seconds
        self._s = min(LONGEST_S, max(SHORTEST_S, seen, self._s + SHRINK_SHARE * (seen - self._s)))

    def off_until(self, at: float) -> None:
        """Prepare nothing before the monotonic instant `at`: the next due jobs cannot be prepared."""
        self._off_until = at

    def wait(self, conn: Connection[Any], done: TickResult, instant: datetime, lead_s: float) -> None:
        """Hold a batch that was prepared with this lead until its instant.

        If nothing of it could be prepared, nothing else is prepared before that instant. Raises NotAsPrepared where the
        database's clock went back, or a job has got an unfinished run.
        """
        seconds = ticks.seconds_until(conn, instant)
        if not done.jobs:
            self.off_until(time.monotonic() + min(seconds, lead_s))
            return
        if seconds > lead_s:  # jobs would stay locked for too long
            raise NotAsPrepared(f"the database's clock went back: the instant is {seconds:g} s away")
        sleep(max(0.0, seconds))
        if ticks.has_other_open_run(conn, done.assumed_idle_jobs, instant):
            raise NotAsPrepared("a job has got an unfinished run")
