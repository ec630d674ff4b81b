"""The duty that keeps the next slots of each job in the database, where SQL can read them (pgsched.preview).

SQL cannot compute slots. So the leader computes some in advance, by the functions that decide them.

Invariant: of each job that is planned, at least `LEAST` slots are kept, and no job's are written more than once in
`CHECK_S`, however often it fires.

A job that the tick has just planned anew is looked at in the same round, or after the lull. Jobs that fired are looked
at every `CHECK_S`. All jobs are looked at by each new leader, and from time to time, as a process may end between the
tick and this.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any

from pgsched import log
from pgsched.core.planning.job_schedule import job_schedule
from pgsched.core.planning.plan import Advance
from pgsched.core.schedule import zones
from pgsched.core.schedule.base import Schedule
from pgsched.core.schedule.shifted import Shifted
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.shared_calendars import CalendarCache, CalendarTimes
from pgsched.db.queries.leader import next_slots
from pgsched.db.queries.leader.next_slots import Kept, Wanting
from pgsched.errors import ScheduleError
from pgsched.leader.duty import Duty, Round
from pgsched.leader.term import Term

logger = log.get("leader")
LEAST, SPARE, MOST = 10, 10, 100  # slots: kept at least; computed beyond those; of a schedule that fires often
CHECK_S = 30.0
AHEAD = timedelta(seconds=2 * CHECK_S)  # a schedule that fires often has slots for so long
WALK_S = 600.0
BATCH = 100  # some 10 ms
LONGEST_S = 0.05  # the tick must have its turn
Leading = Callable[[], AbstractContextManager[Connection[Any]]]


class NextSlots:
    """Which jobs one term is to look at.

    `planned`: jobs that the tick planned anew, to be looked at soon.
    `fired_at`: monotonic instant from which those that fired are looked at.
    """

    def __init__(self) -> None:
        self.planned: dict[int, None] = {}  # in their order
        self._fired: set[int] = set()
        self.fired_at = time.monotonic() + CHECK_S
        self._walk_at, self._after = time.monotonic(), 0
        self._rules = zones.tzdata_version()
        self._calendars = CalendarCache()

    def note_tick(self, job: int, advance: Advance, *, fired: bool) -> None:
        """Note that the tick decided a job. `fired`: slots were due."""
        if fired:
            self._fired.add(job)
        elif advance.next_run_at is not None:
            self.planned[job] = None

    def is_due(self, now: float) -> bool:
        """Check whether there are jobs to look at. `now`: monotonic."""
        return bool(self.planned) or now >= min(self.fired_at, self._walk_at)

    def look(self, conn: Connection[Any], lead: Leading) -> bool:
        """Look at some jobs, and keep their next slots if necessary; return whether newly planned jobs are left."""
        wanting = next_slots.list_wanting(conn, self._choose(conn), self._rules, CHECK_S)
        times = self._calendars.times_of(conn, (job.calendar for job in wanting if job.mark is not None))
        found = self._compute(wanting, times)
        if found:
            with lead() as fenced:
                next_slots.keep(fenced, found, self._rules)
        return bool(self.planned)

    def _choose(self, conn: Connection[Any]) -> Sequence[int]:
        """Return the jobs to look at next: newly planned ones first."""
        now = time.monotonic()
        if self.planned:
            chosen = list(islice(self.planned, BATCH))
            for job in chosen:
                del self.planned[job]
            return chosen
        if now >= self.fired_at:
            chosen = list(islice(self._fired, BATCH))
            self._fired.difference_update(chosen)
            if not self._fired:
                self.fired_at = now + CHECK_S
            return chosen
        page = next_slots.page_of_jobs(conn, self._after, BATCH)
        self._after = page[-1] if len(page) == BATCH else 0
        if not self._after:
            self._walk_at = now + WALK_S
        return page

    def _compute(self, jobs: Iterable[Wanting], times: Mapping[str, CalendarTimes]) -> list[tuple[Wanting, Kept]]:
        """Return the next slots of these jobs, or of the first ones if that takes long."""
        found: list[tuple[Wanting, Kept]] = []
        until = time.monotonic() + LONGEST_S
        for job in jobs:
            if time.monotonic() > until:
                self.planned[job.id] = None
                continue
            try:
                shifted = {} if job.mark is None else {"calendar_times": times.get(job.calendar or "")}
                found.append((job, slots_after(job_schedule(job._asdict() | shifted), job.after_at)))
            except ScheduleError:  # the tick reports it
                continue
            except Exception as error:  # this host cannot read the zone's rules now
                logger.warning("the next slots of a job cannot be computed", job=job.id, error=str(error))
        return found


def slots_after(schedule: Schedule, instant: datetime) -> Kept:
    """Return the next slots after an instant: enough for `AHEAD`, and some more."""
    first = schedule.after(instant)
    if first is None:
        return Kept((), (), None)
    if not isinstance(schedule, Shifted):
        return slots_from(schedule, first)
    kept = compute_slots(schedule, first)
    return kept._replace(nominals=[schedule.nominal_of(slot) for slot in kept.slots])


@lru_cache(maxsize=512)
def slots_from(schedule: Schedule, first: datetime) -> Kept:
    """Return the slots of a schedule from `first` on, which is one; equal schedules are computed once."""
    return compute_slots(schedule, first)


def compute_slots(schedule: Schedule, first: datetime) -> Kept:
    """Return the slots of a schedule from `first` on, which is one."""
    slots, beyond = [first], 0
    while beyond < LEAST + SPARE and len(slots) < MOST:
        following = schedule.after(slots[-1])
        if following is None:
            return Kept(slots, offsets_of(schedule, slots), None)
        slots.append(following)
        beyond += following > first + AHEAD
    return Kept(slots, offsets_of(schedule, slots), slots[-LEAST])


def offsets_of(schedule: Schedule, slots: Iterable[datetime]) -> list[int]:
    """Return what the schedule's zone is ahead of UTC at each slot, in seconds."""
    tz = zones.zone(schedule.timezone)
    return [int((slot.astimezone(tz).utcoffset() or timedelta(0)).total_seconds()) for slot in slots]


class NextSlotsDuty(Duty):
    """The duty that keeps the next slots of jobs for readers. `next_slots`: which jobs it looks at."""

    name = "next slots"

    def __init__(self, term: Term) -> None:
        super().__init__(term)
        self.next_slots = NextSlots()

    def start(self, this_round: Round) -> bool:
        """Check whether there are jobs to look at, and no lull."""
        return not self.term.lull and self.next_slots.is_due(this_round.began)

    def run(self, this_round: Round) -> int:
        """Look at some jobs; return 1 if newly planned ones are left, else 0."""
        return int(self.next_slots.look(self.term.conn, self.term.leading))

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until the lull ends for which newly planned jobs wait; infinite if there are none."""
        return max(0.0, self.term.lull_until - time.monotonic()) if self.next_slots.planned else math.inf
