"""The tick: due jobs become slots, slots become rows, exactly one row a slot.

Three guards keep a slot from firing twice: the leader's lock, the row lock with the rising high-water mark, and
UNIQUE (job_id, scheduled_at). A job that cannot be evaluated is marked with its error and stops nobody else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from pgsched.core.plan import Advance, Decided, Job, Plans, SlotRow, decide_job
from pgsched.db import leading
from pgsched.db.connect import Connection
from pgsched.errors import PgschedError

# A batch ends early rather than outlive the session's idle timeout between its statements, or fill the memory.
MOST_SLOTS = 20_000
LONGEST_S = 2.0


@dataclass
class Tick:
    """One batch in the making. `ends`: jobs whose unfinished runs are to be ended, and whether they are terminated."""

    slots: list[SlotRow] = field(default_factory=list)
    advances: list[Advance] = field(default_factory=list)
    ends: dict[int, bool] = field(default_factory=dict)
    plans: Plans = field(default_factory=dict)

    def add(self, job: Job, decided: Decided) -> None:
        """Take one job's part."""
        self.slots += decided.rows
        self.advances.append(decided.advance)
        if decided.ends_others:
            self.ends[job["id"]] = job["overlap"] == "terminate"

    def leave_out(self, jobs: set[int]) -> None:
        """Put these jobs off to the next tick: nothing of theirs is decided."""
        self.slots = [slot for slot in self.slots if slot.job_id not in jobs]
        self.advances = [advance for advance in self.advances if advance.job_id not in jobs]


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a batch did: jobs decided, rows made, jobs in error; `more`: others may be due still."""

    jobs: int
    slots: int
    errors: int
    more: bool


def tick(conn: Connection[Any], batch: int) -> Ticked:
    """Decide one batch of due jobs in the caller's transaction."""
    jobs = leading.due_jobs(conn, batch)
    work = Tick()
    until = time.monotonic() + LONGEST_S
    for job in jobs:
        if len(work.slots) >= MOST_SLOTS or time.monotonic() > until:
            break
        try:
            work.add(job, decide_job(job, work.plans))
        except PgschedError as error:
            work.advances.append(Advance(job["id"], None, None, error=str(error)))
        except Exception as error:  # one job must not stop the others, whatever is wrong with it
            work.advances.append(Advance(job["id"], None, None, error=f"schedule: {type(error).__name__}: {error}"))
    looked_at = len(work.advances)
    # somebody else is at a run that was to be ended: that job waits, the others do not
    work.leave_out(leading.end_open_runs(conn, work.ends))
    made = leading.insert_slots(conn, work.slots)
    leading.advance_jobs(conn, work.advances)
    errors = sum(advance.error is not None for advance in work.advances)
    return Ticked(len(work.advances), made, errors, more=looked_at < len(jobs) or looked_at >= batch)
