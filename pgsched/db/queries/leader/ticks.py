"""The tick: read the jobs that are due, and write the rows of their decided slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pgsched.core.planning.plan import Advance, SlotRow
from pgsched.db.arrays import literal, literals
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import Reaction, classify
from pgsched.db.queries.leader.leadership import EVER, Instants
from pgsched.db.rows import fetch, fetch_as, value
from pgsched.db.statements import sql

UNIQUE_VIOLATION = "23505"
CHECK_VIOLATION = "23514"
# Statement -> name of its step of admission. Its runs wait for a time or for other runs of their job, not for a limit.
ADMITTING = {"runs_expire": "expiry", "admit_scheduled": "scheduled runs", "admit_waiting": "waiting runs"}
ExcludedIdsOf = Callable[[str], Sequence[int]]  # name of a step -> ids of runs that it leaves alone


class Due(NamedTuple):
    """A due job: `tick_due` in sql/ticks.sql.

    `now`: the one instant at which the whole batch is decided
    `mark`: the job's slots lie after this instant; None: it runs once and was not decided yet
    `anchor`: where the schedule began, if its slots count from there
    `dated`: the job has excluded dates of its own, or a calendar shifts its slots
    `shape`: jobs of the same shape have the same schedule and policies
    """

    id: int
    now: datetime
    mark: datetime | None
    anchor: datetime | None
    dated: bool
    shape: str


class Planned(NamedTuple):
    """A job's next slot as it was planned: `plans_look` in sql/ticks.sql.

    `mark`: the job's slots lie after this instant; `schedule`: None where no time zone affects the next slot.
    `shifted`: a calendar may shift the next slot
    """

    id: int
    schedule: str | None
    timezone: str
    mark: datetime
    next_run_at: datetime
    shifted: bool = False


class Known(NamedTuple):
    """Consecutive slots of a job, from `first` to `last`, for which one row stands."""

    job_id: int
    first: datetime
    last: datetime


def due_jobs(
    conn: Connection[Any], n: int, lead_s: float = 0.0, excluded_ids: Sequence[int] = (), since_s: float = -math.inf
) -> list[Due]:
    """Lock and return up to `n` jobs that are due: `tick_due` in sql/ticks.sql.

    `lead_s`: if none is due now, those that are within this many seconds, all at one instant
    `excluded_ids`: ids that are left out
    `since_s`: jobs that were due earlier are left out, in seconds since 1970
    """
    values = {"n": n, "lead_s": lead_s, "aside": literal(excluded_ids), "since_s": since_s}
    return fetch_as(conn, Due, "tick_due", values)


def list_planned(conn: Connection[Any], after: int, n: int) -> list[Planned]:
    """Return the next `n` jobs behind the id `after`, with their planned next slots: `plans_look`."""
    return fetch_as(conn, Planned, "plans_look", {"after": after, "n": n})


def plan_again(conn: Connection[Any], jobs: Sequence[tuple[int, datetime]]) -> int:
    """Let jobs be planned again; return how many will be.

    Each job is given with its next slot as it was read. A job that was planned meanwhile, or is locked, is left alone.
    """
    job_ids, next_run_ats = (literal(column) for column in zip(*jobs, strict=True))
    return conn.execute(sql("plans_again"), {"job_ids": job_ids, "next_run_ats": next_run_ats}).rowcount


def seconds_until(conn: Connection[Any], at: datetime) -> float:
    """Return the seconds until `at` by the database's clock; negative when it has passed."""
    return float(value(conn, "tick_wait", {"at": at}))


def schedules_of(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the schedules and policies of these jobs, by id: `tick_terms` in sql/ticks.sql."""
    return {row["id"]: row for row in fetch(conn, "tick_terms", {"job_ids": literal(jobs)})}


def count_open_runs_of_jobs(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return counts of open and waiting runs of these jobs and the newest one, by job: `tick_open` in sql/ticks.sql.

    Jobs without an open run are left out.
    """
    return {row["job_id"]: row for row in fetch(conn, "tick_open", {"job_ids": literal(jobs)})} if jobs else {}


def has_other_open_run(conn: Connection[Any], jobs: Sequence[int], at: datetime) -> bool:
    """Check whether one of these jobs has an unfinished run other than the one of its slot `at`."""
    return bool(jobs) and bool(value(conn, "tick_crossed", {"job_ids": literal(jobs), "at": at}))


def last_ends_of(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return when the last run of each of these jobs ended, by job."""
    return {row["job_id"]: row for row in fetch(conn, "tick_finished", {"job_ids": literal(jobs)})} if jobs else {}


def known_slots(conn: Connection[Any], stretches: Sequence[tuple[int, datetime, datetime]]) -> set[Known]:
    """Return, for slots in these stretches (job, first, last), the slots for which rows exist already.

    The row of a stretch stands for each of its slots.
    """
    columns = [literal(column) for column in zip(*stretches, strict=True)]
    values = dict(zip(("job_ids", "firsts", "lasts"), columns, strict=True)) if stretches else {}
    return set(fetch_as(conn, Known, "tick_known", values)) if stretches else set()


def insert_slots(conn: Connection[Any], slots: Sequence[tuple[Sequence[int], SlotRow]]) -> int:
    """Insert the rows of decided slots, each for one or many jobs; return how many rows are new.

    An excluded stretch that goes on extends the row that it has. Raises DatabaseError; `is_slot_taken` tells whether a
    slot has its row already.
    """
    extended = extend_slots(conn, [(jobs[0], row) for jobs, row in slots if row.extend is not None])
    new = [(jobs, row) for jobs, row in slots if row.extend is None or (jobs[0], row.slot) not in extended]
    if not new:
        return 0
    (found,) = fetch(conn, "tick_insert", parallel_arrays(new, SlotRow), prepare=False)
    return int(found["made"])


def extend_slots(conn: Connection[Any], slots: Sequence[tuple[int, SlotRow]]) -> set[tuple[int, datetime]]:
    """Extend the rows of excluded stretches that go on; return the (job, slot) that need no row of their own."""
    if not slots:
        return set()
    values = {**parallel_arrays([((), row) for _, row in slots], SlotRow), "job_ids": literal(job for job, _ in slots)}
    return {(row["job_id"], row["slot"]) for row in fetch(conn, "tick_extend", values)}


def advance_jobs(conn: Connection[Any], advances: Sequence[tuple[Sequence[int], Advance]]) -> None:
    """Move high-water marks and next slots, each for one or many jobs."""
    if advances:
        conn.execute(sql("tick_advance"), parallel_arrays(advances, Advance), prepare=False)


def parallel_arrays(values: Sequence[tuple[Sequence[int], Any]], kind: type[SlotRow | Advance]) -> dict[str, str]:
    """Turn rows, at least one, into the parallel arrays that set-based statements take (`slot` -> `slots`)."""
    every = dict(zip(kind._fields, zip(*[row for _, row in values], strict=True), strict=True))
    # they are equal nearly always, and sending the same texts twice would cost both sides
    if kind is SlotRow and every["available_at"] == every["slot"]:
        every["available_at"] = ()
    arrays = {f"{name}s": literal(column) for name, column in every.items()}
    return {"job_ids": literals(jobs for jobs, _ in values), **arrays}


def is_fault_of_row(error: DatabaseError) -> bool:
    """Check whether one row of the statement may have caused the error, so that the statement succeeds without it.

    True, except for errors about the session or about another transaction.
    """
    others = (Reaction.VALUE, Reaction.BUG, Reaction.BACK_OFF, Reaction.CONFIGURATION)
    return error.sqlstate is not None and classify(error) in others


def is_bad_value(error: DatabaseError) -> bool:
    """Check whether the error names a value of the job, which only an edit can correct (pgsched.raise_bad_value)."""
    found = error.diag
    named = found.column_name is not None and found.constraint_name is None
    return error.sqlstate == CHECK_VIOLATION and found.schema_name == "pgsched" and named


def is_slot_taken(error: DatabaseError) -> bool:
    """Check whether the error says that a slot has its row already.

    While REINDEX CONCURRENTLY is at work, the index exists under other names too, which begin with its own.
    """
    return error.sqlstate == UNIQUE_VIOLATION and (error.diag.constraint_name or "").startswith("runs_slot")


def end_open_runs(conn: Connection[Any], jobs: dict[int, bool]) -> set[int]:
    """End the unfinished runs of these jobs, which a new slot replaces: `tick_replace` in sql/ticks.sql.

    The value of a job says whether its running runs are terminated, or only asked to cancel. Returns the jobs whose
    runs stay for now, because another transaction has locked one of them.
    """
    if not jobs:
        return set()
    params = {"job_ids": list(jobs), "terminates": list(jobs.values())}
    return {row["job_id"] for row in fetch(conn, "tick_replace", params) if row["job_id"] is not None}


def exclude_nothing(_: str) -> Sequence[int]:
    """Return no ids: nothing is set aside."""
    return ()


def admit(
    conn: Connection[Any], n: int, excluded_ids_of: ExcludedIdsOf = exclude_nothing, since: Instants = EVER
) -> int:
    """End runs that may no longer start, then make due and unblocked runs claimable; return how many of both.

    `excluded_ids_of`: which runs each step leaves alone, by the names in ADMITTING
    `since`: what was due earlier is left out
    """
    return sum(admit_step(conn, step, n, excluded_ids_of(name), since) for step, name in ADMITTING.items())


def admit_step(
    conn: Connection[Any], step: str, n: int, excluded_ids: Sequence[int] = (), since: Instants = EVER
) -> int:
    """Send one of the statements in ADMITTING; return how many runs it changed."""
    (found,) = fetch(conn, step, admission_parameters(n, excluded_ids, since, act=True))
    return int(found["done"])


def first_to_admit(conn: Connection[Any], step: str, excluded_ids: Sequence[int] = ()) -> int | None:
    """Return the id of a run with which a statement in ADMITTING would begin, or None."""
    (found,) = fetch(conn, step, admission_parameters(1, excluded_ids, EVER, act=False))
    return None if found["first"] is None else int(found["first"])


def admission_parameters(n: int, excluded_ids: Sequence[int], since: Instants, *, act: bool) -> dict[str, Any]:
    """Return the parameters of the statements in ADMITTING. `act`: False: change nothing."""
    begins = {"scheduled_s": since.scheduled_s, "expires_s": since.expires_s, "held_s": since.held_s}
    return {"n": n, "aside": literal(excluded_ids), "act": act} | begins
