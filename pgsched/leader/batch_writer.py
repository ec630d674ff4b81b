"""The rule: a batch of decisions is written whole, or so that only the rows that the database refuses are missing.

Whole means a few set-based statements. Where one of them is refused, the batch is halved until the jobs are found whose
rows are at fault: all others have theirs. A job is marked with the error, and waits for an edit, only where that names
a value of the job itself; any other refusal may pass (a sequence that is behind, a full disk, somebody's own trigger),
so that the job keeps its slot and is tried again.
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
from pgsched.leader.isolation.bisecting import apart

logger = log.get("leader")
# a job's part of a batch
Part = tuple[int, Decided]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch: jobs that have moved on, new rows, jobs that are in error for good; `failed`: jobs that
    are as they were, each with the error that its rows met."""

    jobs: int = 0
    slots: int = 0
    refused: int = 0
    failed: dict[int, DatabaseError] = field(default_factory=dict)

    def __add__(self, other: Written) -> Written:
        numbers = (self.jobs + other.jobs, self.slots + other.slots, self.refused + other.refused)
        return Written(*numbers, self.failed | other.failed)


def write(conn: Connection[Any], parts: Sequence[Part], terminates: Container[int]) -> Written:
    """Write all of a batch, or nothing. Raises what the database raises: also where a slot has its row already.

    `terminates`: the jobs whose unfinished runs lose their claim where others' are asked to end.
    """
    parts = end_others(conn, parts, terminates)
    shared = by_outcome(parts)
    slots = [(jobs, row) for decided, jobs in shared for row in decided.rows]
    inserted = ticks.insert_slots(conn, slots)
    ticks.advance_jobs(conn, [(jobs, decided.advance) for decided, jobs in shared])
    return Written(len(parts), inserted)


def write_apart(conn: Connection[Any], parts: Sequence[Part], terminates: Container[int]) -> Written:
    """Write what the database takes of a batch, and say which jobs' rows it refuses.

    A job of which a slot got its row from somebody else meanwhile stays due: the next tick decides it with that row.
    """

    def alone(part: Part, error: DatabaseError) -> Written:
        if ticks.slot_taken(error):
            logger.warning("a slot got its row meanwhile; its job stays due", job=part[0])
            return Written()
        if ticks.own_value(error):
            return mark(conn, part[0], f"the database refuses its row: {first_line(error)}")
        return Written(failed={part[0]: error})

    return sum(apart(conn, parts, lambda some: write(conn, some, terminates), alone), Written())


def mark(conn: Connection[Any], job: int, error: str) -> Written:
    """Mark a job with its error, if its row can be written."""
    try:
        with conn.transaction():
            ticks.advance_jobs(conn, [((job,), Advance(None, None, error=error))])
            return Written(1, 0, 1)
    except DatabaseError as refusal:
        if not ticks.refused(refusal):
            raise
        return Written(failed={job: refusal})


def end_others(conn: Connection[Any], parts: Sequence[Part], terminates: Container[int]) -> Sequence[Part]:
    """End the runs that new slots replace. Returns the parts without the jobs that wait: somebody is at such a run."""
    busy = ticks.end_open_runs(conn, {job: job in terminates for job, decided in parts if decided.ends_others})
    return [part for part in parts if part[0] not in busy] if busy else parts


def by_outcome(parts: Sequence[Part]) -> list[tuple[Decided, list[int]]]:
    """The jobs of each outcome: those of one shape share it, and their rows are written as one."""
    found: dict[int, tuple[Decided, list[int]]] = {}
    for job, decided in parts:
        shared = found.get(id(decided))
        if shared is None:
            found[id(decided)] = (decided, [job])
        else:
            shared[1].append(job)
    return list(found.values())
