"""The tick: decide the due slots of jobs, and write them as rows.

Invariant: each slot gets exactly one row. Three guards keep a slot from firing twice: the leader's lock, the row lock
with the rising high-water mark, and UNIQUE (job_id, scheduled_at).

A job that cannot be evaluated is marked with its error, and stops no other job. Where this host cannot read a file now
(no descriptor is left, the environment was replaced), the job stays due.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgsched import log
from pgsched.core.planning.intervals import CoveredSlots
from pgsched.core.planning.plan import Advance, Decided
from pgsched.core.planning.shared_plan import Shape
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.queries.jobs.shared_calendars import CalendarCache
from pgsched.db.queries.leader import ticks
from pgsched.errors import PgschedError
from pgsched.leader.batch_writer import Part, WriteResult, write_accepted, write_batch

logger = log.get("leader")
# A batch ends early, before the session's idle timeout between two statements, and before it fills the memory.
MOST_SLOTS = 20_000
LONGEST_S = 2.0
READ_S = 1.0  # part of LONGEST_S for new schedules: reading one that never fires takes some milliseconds
# Key of a shape, whose jobs are decided alike. A job with excluded dates has a shape of its own, and so has one whose
# slots a calendar shifts.
Key = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class TickResult:
    """Result of one batch.

    `jobs`: jobs decided.
    `slots`: rows made.
    `errors`: jobs in error.
    `instant`: that of a batch that was prepared ahead, which must not commit before it.
    `undecided_count`: jobs due at that instant that cannot be decided before.
    `assumed_idle_jobs`: jobs prepared because they had no unfinished run; at the commit that must still be so.
    `failed`: jobs that stay due, with the errors of their rows.
    `parts`: what was decided of each job whose slots can be foreseen.
    """

    jobs: int
    slots: int
    errors: int
    instant: datetime | None = None
    undecided_count: int = 0
    assumed_idle_jobs: Sequence[int] = ()
    failed: Mapping[int, DatabaseError] = field(default_factory=dict)
    parts: Sequence[Part] = ()


def tick(
    conn: Connection[Any],
    batch: int,
    lead_s: float = 0.0,
    set_aside_ids: Sequence[int] = (),
    since_s: float = -math.inf,
    *,
    calendars: CalendarCache | None = None,
) -> TickResult:
    """Decide one batch of due jobs in the caller's transaction; if none is due, prepare those due within `lead_s`.

    Skips the jobs in `set_aside_ids`, and jobs that were due before `since_s` (seconds since 1970).
    `calendars`: what is known of shared calendars.
    """
    calendars = calendars or CalendarCache()
    try:
        # the locks belong into the savepoint, too: locking a row outside and updating it inside would cost a multixact
        with conn.transaction():
            work = TickBatch(conn, batch, lead_s, set_aside_ids, since_s, calendars)
            parts = work.decide()
            return work.summary(parts, write_batch(conn, parts, work.terminates))
    except DatabaseError as error:
        # a row may be refused, or a slot has its row already: a backfill's, or that of a mark that was lost
        if not ticks.is_fault_of_row(error):
            raise
    work = TickBatch(conn, batch, lead_s, set_aside_ids, since_s, calendars)
    parts = work.decide_again(conn, work.decide())
    return work.summary(parts, write_accepted(conn, parts, work.terminates))


class TickBatch:
    """A batch of due jobs, locked, with the facts that are needed to decide them.

    `terminates`: jobs that terminate the runs replaced by their slots.
    """

    def __init__(
        self,
        conn: Connection[Any],
        batch: int,
        lead_s: float,
        set_aside_ids: Sequence[int],
        since_s: float,
        calendars: CalendarCache,
    ) -> None:
        due = ticks.due_jobs(conn, batch, lead_s, set_aside_ids, since_s)
        # the oldest marks first: a plan also holds for a later mark before the same slot
        due.sort(key=lambda job: job[2] or job[1])
        self.shapes = read_shapes(conn, due, calendars)
        self.jobs = [job for job in due if job[0] in self.shapes]
        self.unfinished = read_unfinished(conn, self.jobs, self.shapes)
        self.terminates: set[int] = set()
        self.instant: datetime | None = None
        self.left = 0
        self.assumed_idle_jobs: list[int] = []
        if lead_s > 0 and due and ticks.seconds_until(conn, due[0][1]) > 0:
            self.prepare(due[0][1], len(due))

    def prepare(self, instant: datetime, due: int) -> None:
        """Keep the jobs that can be decided ahead of their instant: those without unfinished runs.

        Whether an unfinished run will have ended by then cannot be known before.
        """
        ready = [job for job in self.jobs if self.is_ready(job)]
        self.instant, self.left, self.jobs = instant, due - len(ready), ready
        self.assumed_idle_jobs = jobs_that_need_unfinished(ready, self.shapes)

    def is_ready(self, job: ticks.Due) -> bool:
        """Check whether a job can be decided ahead of its instant."""
        shape = self.shapes[job[0]]
        return isinstance(shape, Shape) and not shape.is_fixed_delay and job[0] not in self.unfinished

    def decide(self) -> list[Part]:
        """Decide these jobs, or the first of them; those that cannot be evaluated get their error."""
        parts: list[Part] = []
        slots, until = 0, time.monotonic() + LONGEST_S
        for job in self.jobs:
            if slots >= MOST_SLOTS or time.monotonic() > until:
                break
            decided = self.decide_one(job)
            if decided is not None:
                slots += len(decided.rows)
                parts.append((job[0], decided))
        return parts

    def decide_one(self, job: ticks.Due, known: Collection[CoveredSlots] = ()) -> Decided | None:
        """Decide one job, without the slots in `known`, which have their row; None if this host cannot do it now."""
        job_id, _, mark, anchor, _, _ = job
        shape = self.shapes[job_id]
        try:
            if isinstance(shape, Exception):
                raise shape
            decided = shape.decide(job_id, mark, anchor, self.unfinished.get(job_id), known)
        except OSError as error:
            logger.error("a job cannot be decided by this host, and stays due", job=job_id, error=str(error))
            return None
        except Exception as error:  # no error of one job may stop the others
            text = str(error) if isinstance(error, PgschedError) else f"schedule: {type(error).__name__}: {error}"
            return Decided([], Advance(None, None, error=text), ends_others=False)
        if decided.ends_others and shape.terms["overlap"] == "terminate":
            self.terminates.add(job_id)
        return decided

    def decide_again(self, conn: Connection[Any], parts: Sequence[Part]) -> list[Part]:
        """Decide again the jobs with slots that have a row already, this time without those slots.

        This is repeated as long as a slot that is reached instead has a row too.
        """
        jobs = {job[0]: job for job in self.jobs}
        known: dict[int, set[CoveredSlots]] = {}
        decided: dict[int, Decided | None] = dict(parts)
        asked = dict(parts)
        while asked:
            stretches = [(job, row.covers_from or row.slot, row.slot) for job, one in asked.items() for row in one.rows]
            found = {row for row in ticks.known_slots(conn, stretches) if row[1:] not in known.get(row[0], ())}
            for job_id, first, last in found:
                known.setdefault(job_id, set()).add((first, last))
            again = {job_id: self.decide_one(jobs[job_id], known[job_id]) for job_id, *_ in found}
            decided |= again
            asked = {job_id: one for job_id, one in again.items() if one is not None}
        return [(job_id, one) for job_id, one in decided.items() if one is not None]

    def summary(self, parts: Sequence[Part], written: WriteResult) -> TickResult:
        """Return the result of the batch."""
        errors = sum(decided.advance.error is not None for _, decided in parts) + written.refused
        looking = [job for job in self.assumed_idle_jobs if job not in written.failed]
        foreseen = [part for part in parts if not getattr(self.shapes[part[0]], "is_fixed_delay", True)]
        return TickResult(written.jobs, written.slots, errors, self.instant, self.left, looking, written.failed,
                          foreseen)  # fmt: skip


def shape_key(job: ticks.Due) -> Key:
    """Return the key under which the shape of a job is kept."""
    return job[5], job[0] if job[4] else None


def read_shapes(
    conn: Connection[Any], jobs: Iterable[ticks.Due], calendars: CalendarCache
) -> dict[int, Shape | Exception]:
    """Return the shape of each job, or of the first ones if that takes long; an error where it cannot be read."""
    alike: dict[Key, list[ticks.Due]] = {}
    for job in jobs:
        alike.setdefault(shape_key(job), []).append(job)
    terms = ticks.schedules_of(conn, [first[0] for first, *_ in alike.values()]) if alike else {}
    times = calendars.times_of(conn, (row["calendar"] for row in terms.values()))
    shapes: dict[int, Shape | Exception] = {}
    until = time.monotonic() + READ_S
    for key, ((job_id, now, *_), *_) in alike.items():
        shape: Shape | Exception
        # excluded dates added since the job was locked count from the next tick on: other jobs may share the shape
        excluded = terms[job_id]["excluded"] if key[1] is not None else None
        try:
            more = {"now": now, "excluded": excluded, "calendar_times": times.get(terms[job_id]["calendar"])}
            shape = Shape(terms[job_id] | more)
        except Exception as error:
            shape = error
        shapes.update((job[0], shape) for job in alike[key])
        if time.monotonic() > until:
            break
    return shapes


def read_unfinished(
    conn: Connection[Any], jobs: Iterable[ticks.Due], shapes: Mapping[int, Shape | Exception]
) -> dict[int, dict[str, Any]]:
    """Return the unfinished runs of the jobs that need them, and the last end of a run for those that wait for it."""
    found = ticks.count_open_runs_of_jobs(conn, jobs_that_need_unfinished(jobs, shapes))
    last = ticks.last_ends_of(conn, jobs_that_need_unfinished(jobs, shapes, delayed=True))
    return found | {job_id: row | found.get(job_id, {}) for job_id, row in last.items()}


def jobs_that_need_unfinished(
    jobs: Iterable[ticks.Due], shapes: Mapping[int, Shape | Exception], *, delayed: bool = False
) -> list[int]:
    """Return the jobs whose unfinished runs matter; with `delayed`, only those that wait for a run's end."""
    found = [(job[0], shapes[job[0]]) for job in jobs]
    read = [(job_id, shape) for job_id, shape in found if isinstance(shape, Shape)]
    return [job_id for job_id, shape in read if (shape.is_fixed_delay if delayed else shape.needs_open_runs)]
