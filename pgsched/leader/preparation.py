"""A batch of slots is prepared shortly before its instant, and commits at the instant itself.

Otherwise every slot would start later by the time that it takes to write the rows of all of them. Invariant: nobody
sees a prepared row before its instant, and what a batch was prepared for still holds when it commits.
"""

from __future__ import annotations

import time
from datetime import datetime
from time import sleep
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import ticks
from pgsched.leader.ticker import Ticked

FIRST_S = 0.01
SHORTEST_S = 0.003
LONGEST_S = 0.25  # jobs are locked for so long; who edits one waits
MARGIN = 1.25
FADE = 0.1


class NotAsPrepared(Exception):
    """What a batch was prepared for does not hold at its instant: nothing of it is kept, and it is decided on time."""


class PreparationLead:
    """How long before its instant a batch is prepared: as long as batches take. All times are monotonic seconds."""

    def __init__(self) -> None:
        self._s = FIRST_S
        self._off_until = 0.0

    def s(self, now: float) -> float:
        """Seconds of lead that the next batch gets."""
        return 0.0 if now < self._off_until else self._s

    def took(self, seconds: float) -> None:
        """A batch took so long to prepare. The lead grows at once, because one that is too short makes all of a batch
        late, and shrinks slowly."""
        seen = MARGIN * seconds
        self._s = min(LONGEST_S, max(SHORTEST_S, seen, self._s + FADE * (seen - self._s)))

    def off_until(self, at: float) -> None:
        """What is due next cannot be prepared."""
        self._off_until = at

    def wait(self, conn: Connection[Any], done: Ticked, instant: datetime, lead_s: float) -> None:
        """A batch that was prepared with this lead waits for its instant; if nothing of it could be prepared, nothing
        else is until then. Raises NotAsPrepared."""
        seconds = ticks.seconds_until(conn, instant)
        if not done.jobs:
            self.off_until(time.monotonic() + min(seconds, lead_s))
            return
        if seconds > lead_s:  # jobs are locked meanwhile
            raise NotAsPrepared(f"the database's clock went back: the instant is {seconds:g} s away")
        sleep(max(0.0, seconds))
        if ticks.crossed(conn, done.looking, instant):
            raise NotAsPrepared("a job has got an unfinished run")
