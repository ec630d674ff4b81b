"""Plan jobs again whose next slot is another one by the time zone rules of this process.

A new leader checks the next slots that earlier leaders planned, because its zone rules may be newer. Where a country
has moved or dropped a clock change, a slot may be earlier than planned. The leader would then wake up too late for it.

Invariant: a next slot that this process computes differently is planned again. A process keeps the zone rules that it
was started with, so once a term is enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import lru_cache
from typing import Any

from pgsched import log
from pgsched.core.schedule.cron import parse
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import ticks
from pgsched.errors import ScheduleError

logger = log.get("leader")
JOBS = 2000
LONGEST_S = 0.1  # the tick must have its turn
AGAIN_S = 1.0
Leading = Callable[[], AbstractContextManager[Connection[Any]]]


class Replanning:
    """Position of a leader among the jobs. `at`: monotonic instant of its next look; infinite once it has seen all."""

    def __init__(self) -> None:
        self.at = -math.inf
        self._after = 0
        self._left = False

    def check_jobs(self, conn: Connection[Any], lead: Leading) -> int:
        """Look at some jobs; return 0 when nothing further can be done at once."""
        rows = ticks.list_planned(conn, self._after, JOBS)
        moved, looked = find_moved_jobs(rows)
        again = 0
        if moved:
            with lead() as fenced:
                again = ticks.plan_again(fenced, moved)
            self._left |= again < len(moved)
        if again:
            logger.info("the next slots of jobs have moved: they are planned again", jobs=again)
        if looked == len(rows) < JOBS:
            # look again at jobs that an edit has locked, or that were planned meanwhile
            self.at = time.monotonic() + AGAIN_S if self._left else math.inf
            self._left, self._after = False, 0
            return again
        self._after = rows[looked - 1][0]
        return 1


def find_moved_jobs(rows: Sequence[ticks.Planned]) -> tuple[list[tuple[int, datetime]], int]:
    """Return the jobs whose next slot differs by the rules of this process, and how many were checked in time."""
    found: list[tuple[int, datetime]] = []
    until = time.monotonic() + LONGEST_S
    for looked, (job_id, schedule, timezone, mark, next_at, shifted) in enumerate(rows, 1):
        # a slot that a calendar may shift is not computed here: the job is planned again
        if shifted or (schedule is not None and has_moved(schedule, timezone, mark, next_at)):
            found.append((job_id, next_at))
        if time.monotonic() > until:
            return found, looked
    return found, len(rows)


@lru_cache(maxsize=JOBS)
def has_moved(schedule: str, timezone: str, mark: datetime, next_at: datetime) -> bool:
    """Check whether another slot is next by now; also True for a schedule that has none any more.

    The tick then handles that schedule.
    """
    try:
        return parse(schedule, timezone).after(mark) != next_at
    except ScheduleError:
        return True
    except Exception:  # this host cannot read the zone's rules now, or the tick will report the error
        return False
