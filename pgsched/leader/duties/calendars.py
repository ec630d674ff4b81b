"""Plan the jobs of changed calendars again: their next slots may lie elsewhere by now, and earlier than planned.

Invariant: a calendar counts as changed until each of its jobs that another transaction had locked was planned again,
too. A change that commits meanwhile makes it a changed one again.

The edit only marks the calendar. So it locks no job of another owner, however long its transaction lasts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import calendars
from pgsched.db.queries.leader.calendars import ChangedCalendar
from pgsched.leader.duty import Duty, Round
from pgsched.leader.term import Term

logger = log.get("leader")
JOBS = 2000
CALENDARS = 100
AGAIN_S = 0.5
Leading = Callable[[], AbstractContextManager[Connection[Any]]]


class CalendarChanges:
    """Position of a leader among the jobs of a changed calendar.

    `at`: monotonic instant before which nothing is done, because other transactions have locked what is left.
    """

    def __init__(self) -> None:
        self.at = -math.inf
        self._calendar: ChangedCalendar | None = None
        self._after = 0
        self._locked: dict[ChangedCalendar, list[int]] = {}

    def replan(self, lead: Leading) -> int:
        """Plan some jobs again; return 0 when nothing further can be done at once."""
        with lead() as conn:
            changed = calendars.list_changed(conn, CALENDARS)
            self._locked = {one: ids for one, ids in self._locked.items() if one in changed}
            calendar = self._next(changed)
            if calendar is None:
                self.at = time.monotonic() + AGAIN_S if changed else -math.inf
                self._retry_locked(conn)
                return 0
            found = calendars.replan_jobs(conn, calendar.name, self._after, JOBS)
            self._note(calendar, found)
            if len(found) == JOBS:
                self._after = max(found)
                return 1
            self._calendar, self._after = None, 0
            self._locked.setdefault(calendar, [])
            self._finish(conn, calendar)
        return 1

    def _next(self, changed: list[ChangedCalendar]) -> ChangedCalendar | None:
        """Return the calendar to go on with; None if of all of them only locked jobs are left."""
        if self._calendar not in changed:
            self._after = 0
            self._calendar = next((one for one in changed if one not in self._locked), None)
        return self._calendar

    def _note(self, calendar: ChangedCalendar, found: dict[int, bool]) -> None:
        locked = [job for job, again in found.items() if not again]
        if locked:
            self._locked.setdefault(calendar, []).extend(locked)
        if len(found) > len(locked):
            logger.info("a calendar has changed: its jobs are planned again", calendar=calendar.name,
                        jobs=len(found) - len(locked))  # fmt: skip

    def _retry_locked(self, conn: Connection[Any]) -> None:
        """Plan the jobs again that were locked before."""
        for calendar, ids in self._locked.items():
            found = calendars.replan_jobs(conn, calendar.name, 0, JOBS, ids[:JOBS])
            self._locked[calendar] = [job for job, again in found.items() if not again] + ids[JOBS:]
            self._finish(conn, calendar)

    def _finish(self, conn: Connection[Any], calendar: ChangedCalendar) -> None:
        if not self._locked[calendar]:
            calendars.mark_replanned(conn, calendar)


class CalendarsDuty(Duty):
    """The duty that plans the jobs of changed calendars again."""

    name = "changed calendars"

    def __init__(self, term: Term) -> None:
        super().__init__(term)
        self._changes = CalendarChanges()

    def start(self, this_round: Round) -> bool:
        """Check whether the look found a changed calendar of which something can be done."""
        return this_round.look.calendars and this_round.began >= self._changes.at

    def run(self, this_round: Round) -> int:
        """Plan some jobs again; return 0 when nothing further can be done at once."""
        return self._changes.replan(self.term.leading)

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until jobs that were locked are tried again; infinite if there are none."""
        return max(0.0, self._changes.at - time.monotonic()) if this_round.look.calendars else math.inf
