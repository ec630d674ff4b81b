"""The rule: a batch of decisions is written whole, or so that only the rows that the database refuses are missing.

Whole means a few set-based statements. Where one of them is refused, the batch is halved until the jobs are found whose
rows are at fault: those are marked, and all others have theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pgsched import log
from pgsched.core.plan import NEVER_RUN, Advance, Decided
from pgsched.db import leading
from pgsched.db.connect import Connection, DatabaseError, first_line

logger = log.get("leader")


class SlotTaken(Exception):
    """A slot that was decided has its row already: the job's mark is not where it was, and it is decided anew."""


@dataclass(frozen=True, slots=True)
class Part:
    """One job's part of a batch. `again` decides it anew, without slots that are known to have their row."""

    job_id: int
    decided: Decided
    terminates: bool = False
    again: Callable[[set[datetime]], Decided] | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch: jobs that have moved on, new rows, jobs whose rows were refused."""

    jobs: int = 0
    slots: int = 0
    refused: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(self.jobs + other.jobs, self.slots + other.slots, self.refused + other.refused)


def write(conn: Connection[Any], parts: Sequence[Part]) -> Written:
    """Write all of a batch. Raises SlotTaken, and what the database raises."""
    parts = end_others(conn, parts)
    shared = by_outcome(parts)
    slots = [(jobs, row) for decided, jobs in shared for row in decided.rows]
    made = leading.insert_slots(conn, slots)
    if len(made) < sum(len(jobs) for jobs, row in slots if row.extend is None):
        raise SlotTaken
    leading.advance_jobs(conn, [(jobs, decided.advance) for decided, jobs in shared])
    return Written(len(parts), len(made))


def write_apart(conn: Connection[Any], parts: Sequence[Part]) -> Written:
    """Write what the database takes of a batch, and mark the jobs whose rows it refuses."""
    try:
        with conn.transaction():
            return write_counted(conn, parts)
    except DatabaseError as error:
        if not leading.refused(error):
            raise
        if len(parts) == 1:
            return mark(conn, parts[0], f"the database refuses its row: {first_line(error)}")
    half = len(parts) // 2
    return write_apart(conn, parts[:half]) + write_apart(conn, parts[half:])


def write_counted(conn: Connection[Any], parts: Sequence[Part]) -> Written:
    """As `write`, for jobs whose slots may have their row after all: only new rows count."""
    parts = end_others(conn, parts)
    made = leading.insert_slots(conn, [((part.job_id,), row) for part in parts for row in part.decided.rows])
    runs = Counter(job for job, state in made if state not in NEVER_RUN)
    advances = [(part.job_id, part.decided.advance) for part in parts]
    leading.advance_jobs(conn, [((job,), replace(advance, run_count=runs[job])) for job, advance in advances])
    return Written(len(parts), len(made))


def mark(conn: Connection[Any], part: Part, error: str) -> Written:
    """Mark a job with its error, if its row can be written at all."""
    try:
        with conn.transaction():
            leading.advance_jobs(conn, [((part.job_id,), Advance(None, None, error=error))])
            return Written(1, 0, 1)
    except DatabaseError as refusal:
        if not leading.refused(refusal):
            raise
        logger.error("a job cannot be decided", job=part.job_id, error=error, refusal=first_line(refusal))
        return Written()


def end_others(conn: Connection[Any], parts: Sequence[Part]) -> Sequence[Part]:
    """End the runs that new slots replace. Returns the parts without the jobs that wait: somebody is at such a run."""
    ends = {part.job_id: part.terminates for part in parts if part.decided.ends_others}
    busy = leading.end_open_runs(conn, ends)
    return [part for part in parts if part.job_id not in busy] if busy else parts


def by_outcome(parts: Sequence[Part]) -> list[tuple[Decided, list[int]]]:
    """The jobs of each outcome: those of one shape share it, and their rows are written as one."""
    found: dict[int, tuple[Decided, list[int]]] = {}
    for part in parts:
        found.setdefault(id(part.decided), (part.decided, []))[1].append(part.job_id)
    return list(found.values())


def without_known(conn: Connection[Any], parts: Sequence[Part]) -> list[Part]:
    """Decide the jobs anew that have slots with a row already, without those slots."""
    asked = [(part.job_id, row.slot) for part in parts for row in part.decided.rows]
    known: dict[int, set[datetime]] = {}
    for job, slot in leading.known_slots(conn, asked):
        known.setdefault(job, set()).add(slot)
    return [replace(part, decided=part.again(known[part.job_id])) if part.again and part.job_id in known else part
            for part in parts]  # fmt: skip
