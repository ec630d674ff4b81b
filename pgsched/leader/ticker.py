"""The tick: due jobs become slots, slots become rows, exactly one row a slot.

Three guards keep a slot from firing twice: the leader's lock, the row lock with the rising high-water mark, and
UNIQUE (job_id, scheduled_at). A job that cannot be evaluated is marked with its error and stops nobody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pgsched.core.plan import Advance, Decided
from pgsched.core.shape import Shape
from pgsched.db import leading
from pgsched.db.connect import Connection, DatabaseError
from pgsched.errors import PgschedError
from pgsched.leader.batch import Part, SlotTaken, Written, without_known, write, write_apart

# A batch ends early rather than outlive the session's idle timeout between its statements, or fill the memory.
MOST_SLOTS = 20_000
LONGEST_S = 2.0
Key = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a batch did: jobs decided, rows made, jobs in error; `more`: others may be due still."""

    jobs: int
    slots: int
    errors: int
    more: bool


@dataclass(frozen=True, slots=True)
class Due:
    """A job that is due (a row of `sql/tick_due.sql`). Jobs of one `key` are decided alike."""

    job_id: int
    now: datetime
    mark: datetime | None
    key: Key


def tick(conn: Connection[Any], batch: int) -> Ticked:
    """Decide one batch of due jobs in the caller's transaction."""
    try:
        # the locks belong to the savepoint too: to lock a row outside and update it inside would cost a multixact
        with conn.transaction():
            return decided_and_written(conn, batch, write)
    except SlotTaken:
        pass
    except DatabaseError as error:
        if not leading.refused(error):
            raise
    return decided_and_written(conn, batch, lambda conn, parts: write_apart(conn, without_known(conn, parts)))


def decided_and_written(
    conn: Connection[Any], batch: int, write_parts: Callable[[Connection[Any], Sequence[Part]], Written]
) -> Ticked:
    """One batch, written in one of the two ways."""
    jobs = due_jobs(conn, batch)
    parts = decide(conn, jobs)
    written = write_parts(conn, parts)
    errors = sum(part.decided.advance.error is not None for part in parts) + written.refused
    return Ticked(written.jobs, written.slots, errors, more=len(parts) < len(jobs) or len(jobs) >= batch)


def due_jobs(conn: Connection[Any], batch: int) -> list[Due]:
    """Lock due jobs, those with the oldest mark first."""
    jobs = [Due(job_id, now, mark, (shape, job_id if dated else None))
            for job_id, now, mark, dated, shape in leading.due_jobs(conn, batch)]  # fmt: skip
    return sorted(jobs, key=lambda job: job.mark or job.now)


def decide(conn: Connection[Any], jobs: Sequence[Due]) -> list[Part]:
    """Decide these jobs, or the first of them; those that cannot be evaluated get their error."""
    shapes, errors = read_shapes(conn, jobs)
    found = standings(conn, jobs, shapes)
    parts: list[Part] = []
    slots, until = 0, time.monotonic() + LONGEST_S
    for job in jobs:
        if slots >= MOST_SLOTS or time.monotonic() > until:
            break
        shape = shapes.get(job.key)
        if shape is None:
            parts.append(Part(job.job_id, failed(errors[job.key])))
            continue
        again = partial(shape.decide, job.job_id, job.mark, found.get(job.job_id))
        try:
            decided = again()
        except Exception as error:  # one job must not stop the others, whatever is wrong with it
            decided = failed(error)
        slots += len(decided.rows)
        parts.append(Part(job.job_id, decided, shape.terms["overlap"] == "terminate", again))
    return parts


def failed(error: Exception) -> Decided:
    """What becomes of a job that cannot be evaluated."""
    told = str(error) if isinstance(error, PgschedError) else f"schedule: {type(error).__name__}: {error}"
    return Decided([], Advance(None, None, error=told), ends_others=False)


def read_shapes(conn: Connection[Any], jobs: Iterable[Due]) -> tuple[dict[Key, Shape], dict[Key, Exception]]:
    """The shapes of these jobs; for those that cannot be read, why."""
    first = {job.key: job for job in jobs}
    terms = leading.terms(conn, [job.job_id for job in first.values()]) if first else {}
    shapes: dict[Key, Shape] = {}
    errors: dict[Key, Exception] = {}
    for key, job in first.items():
        # a calendar that was made since the job was locked counts from the next tick on: others may have the shape
        excluded = terms[job.job_id]["excluded"] if key[1] is not None else None
        try:
            shapes[key] = Shape(terms[job.job_id] | {"now": job.now, "excluded": excluded})
        except Exception as error:
            errors[key] = error
    return shapes, errors


def standings(conn: Connection[Any], jobs: Iterable[Due], shapes: dict[Key, Shape]) -> dict[int, dict[str, Any]]:
    """What is unfinished of the jobs that it matters to, and when the last run ended of those that wait for it."""
    known = [(job.job_id, shapes[job.key]) for job in jobs if job.key in shapes]
    found = leading.unfinished(conn, [job_id for job_id, shape in known if shape.looks])
    last = leading.finished(conn, [job_id for job_id, shape in known if shape.delayed])
    return found | {job_id: row | found.get(job_id, {}) for job_id, row in last.items()}
