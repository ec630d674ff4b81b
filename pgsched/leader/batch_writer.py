"""Write a batch of decisions of the tick.

Invariant: a batch is written as a whole, or without exactly the rows that the database refuses.

Writing it as a whole takes a few set-based statements. Where one of them is refused, the batch is halved until the jobs
with refused rows are found. The rows of all other jobs are written.

A job is marked with the error, and waits for an edit, only where the error names a value of the job itself. Any other
refusal may pass (a sequence that is behind, a full disk, a user's trigger). The job then keeps its slot and is tried
again.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgsched import log
from pgsched.core.planning.plan import Advance, Decided
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.leader import ticks
from pgsched.leader.isolation.bisecting import write_bisecting

logger = log.get("leader")
# one job's part of a batch: its id and its decisions
Part = tuple[int, Decided]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Result of writing a batch.

    `jobs`: jobs that have moved on.
    `slots`: new rows.
    `refused`: jobs that are in error until they are edited.
    `failed`: unchanged jobs, each with the error of its rows.
    """

    jobs: int = 0
    slots: int = 0
    refused: int = 0
    failed: dict[int, DatabaseError] = field(default_factory=dict)

    def __add__(self, other: WriteResult) -> WriteResult:
        numbers = (self.jobs + other.jobs, self.slots + other.slots, self.refused + other.refused)
        return WriteResult(*numbers, self.failed | other.failed)


def write_batch(conn: Connection[Any], parts: Sequence[Part], terminates: Container[int]) -> WriteResult:
    """Write all of a batch, or nothing. Raises DatabaseError, also where a slot has its row already.

    `terminates`: jobs whose running runs lose their claim; those of other jobs are asked to end.
    """
    parts = end_others(conn, parts, terminates)
    shared = group_by_outcome(parts)
    slots = [(jobs, row) for decided, jobs in shared for row in decided.rows]
    inserted = ticks.insert_slots(conn, slots)
    ticks.advance_jobs(conn, [(jobs, decided.advance) for decided, jobs in shared])
    return WriteResult(len(parts), inserted)


def write_accepted(conn: Connection[Any], parts: Sequence[Part], terminates: Container[int]) -> WriteResult:
    """Write the rows that the database accepts, and report the jobs whose rows it refuses.

    Where a slot got its row from another process meanwhile, its job stays due: the next tick decides it with that row.
    """

    def alone(part: Part, error: DatabaseError) -> WriteResult:
        if ticks.is_slot_taken(error):
            logger.warning("a slot got its row meanwhile; its job stays due", job=part[0])
            return WriteResult()
        if ticks.is_bad_value(error):
            return mark_job_in_error(conn, part[0], f"the database refuses its row: {first_line(error)}")
        return WriteResult(failed={part[0]: error})

    return sum(write_bisecting(conn, parts, lambda some: write_batch(conn, some, terminates), alone), WriteResult())


def mark_job_in_error(conn: Connection[Any], job: int, error: str) -> WriteResult:
    """Mark a job with its error, if the database accepts that."""
    try:
        with conn.transaction():
            ticks.advance_jobs(conn, [((job,), Advance(None, None, error=error))])
            return WriteResult(1, 0, 1)
    except DatabaseError as refusal:
        if not ticks.is_fault_of_row(refusal):
            raise
        return WriteResult(failed={job: refusal})


def end_others(conn: Connection[Any], parts: Sequence[Part], terminates: Container[int]) -> Sequence[Part]:
    """End the runs that new slots replace; return the parts of the jobs that can go on.

    A job waits where another transaction has locked one of these runs.
    """
    busy = ticks.end_open_runs(conn, {job: job in terminates for job, decided in parts if decided.ends_others})
    return [part for part in parts if part[0] not in busy] if busy else parts


def group_by_outcome(parts: Sequence[Part]) -> list[tuple[Decided, list[int]]]:
    """Group jobs by their outcome: jobs of one shape share it, and their rows are written together."""
    found: dict[int, tuple[Decided, list[int]]] = {}
    for job, decided in parts:
        shared = found.get(id(decided))
        if shared is None:
            found[id(decided)] = (decided, [job])
        else:
            shared[1].append(job)
    return list(found.values())
