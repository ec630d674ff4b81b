"""From due jobs to rows: what the tick reads and writes."""

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
# what admission does with runs that only the time or other runs of their job held; by the names of their statements
ADMITTING = {"runs_expire": "expiry", "admit_scheduled": "scheduled runs", "admit_waiting": "held runs"}
Aside = Callable[[str], Sequence[int]]


class Due(NamedTuple):
    """A due job: `tick_due` in sql/ticks.sql says what each value means."""

    id: int
    now: datetime
    mark: datetime | None
    anchor: datetime | None
    dated: bool
    shape: str


class Planned(NamedTuple):
    """A job's next slot as it was planned: `plans_look` in sql/ticks.sql."""

    id: int
    schedule: str | None
    timezone: str
    mark: datetime
    next_run_at: datetime


class Known(NamedTuple):
    """The slots of a job, from the first to the last, that one row stands for."""

    job_id: int
    first: datetime
    last: datetime


def due_jobs(
    conn: Connection[Any], n: int, lead_s: float = 0.0, aside: Sequence[int] = (), since_s: float = -math.inf
) -> list[Due]:
    """Lock up to `n` jobs that are due, within `lead_s` seconds if none is now, but for those set aside: `tick_due` in
    sql/ticks.sql."""
    values = {"n": n, "lead_s": lead_s, "aside": literal(aside), "since_s": since_s}
    return fetch_as(conn, Due, "tick_due", values)


def planned(conn: Connection[Any], after: int, n: int) -> list[Planned]:
    """The next `n` jobs behind an id, with the next slot that was planned for each: `plans_look` in sql/ticks.sql."""
    return fetch_as(conn, Planned, "plans_look", {"after": after, "n": n})


def plan_again(conn: Connection[Any], jobs: Sequence[tuple[int, datetime]]) -> int:
    """Let jobs be planned again, each given with the next slot that was read of it; returns how many will be."""
    job_ids, next_run_ats = (literal(column) for column in zip(*jobs, strict=True))
    return conn.execute(sql("plans_again"), {"job_ids": job_ids, "next_run_ats": next_run_ats}).rowcount


def seconds_until(conn: Connection[Any], at: datetime) -> float:
    """Seconds until `at` on the database's clock; negative when it has passed."""
    return float(value(conn, "tick_wait", {"at": at}))


def terms(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """What the schedules and policies of these jobs say; see `tick_terms` in sql/ticks.sql for the columns."""
    return {row["id"]: row for row in fetch(conn, "tick_terms", {"job_ids": literal(jobs)})}


def unfinished(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """How many runs of these jobs are open and held, and the newest of them; jobs without any are left out."""
    return {row["job_id"]: row for row in fetch(conn, "tick_open", {"job_ids": literal(jobs)})} if jobs else {}


def crossed(conn: Connection[Any], jobs: Sequence[int], at: datetime) -> bool:
    """Has one of these jobs an unfinished run beside that of its slot `at`?"""
    return bool(jobs) and bool(value(conn, "tick_crossed", {"job_ids": literal(jobs), "at": at}))


def finished(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """When the last run of each of these jobs ended."""
    return {row["job_id"]: row for row in fetch(conn, "tick_finished", {"job_ids": literal(jobs)})} if jobs else {}


def known_slots(conn: Connection[Any], stretches: Sequence[tuple[int, datetime, datetime]]) -> set[Known]:
    """The rows that there are for slots in these (job, first, last): (job, first, last) that each stands for."""
    columns = [literal(column) for column in zip(*stretches, strict=True)]
    values = dict(zip(("job_ids", "firsts", "lasts"), columns, strict=True)) if stretches else {}
    return set(fetch_as(conn, Known, "tick_known", values)) if stretches else set()


def insert_slots(conn: Connection[Any], slots: Sequence[tuple[Sequence[int], SlotRow]]) -> int:
    """Make the rows of decided slots, each for one or many jobs; returns how many are new.

    The rest of an excluded stretch goes to the row it has. Raises DatabaseError; `slot_taken` tells whether a slot has
    its row already.
    """
    extended = extend_slots(conn, [(jobs[0], row) for jobs, row in slots if row.extend is not None])
    new = [(jobs, row) for jobs, row in slots if row.extend is None or (jobs[0], row.slot) not in extended]
    if not new:
        return 0
    (found,) = fetch(conn, "tick_insert", columns(new, SlotRow), prepare=False)
    return int(found["made"])


def extend_slots(conn: Connection[Any], slots: Sequence[tuple[int, SlotRow]]) -> set[tuple[int, datetime]]:
    """Let the rows of excluded stretches that go on grow; returns the (job, slot) that need no row of their own."""
    if not slots:
        return set()
    values = {**columns([((), row) for _, row in slots], SlotRow), "job_ids": literal(job for job, _ in slots)}
    return {(row["job_id"], row["slot"]) for row in fetch(conn, "tick_extend", values)}


def advance_jobs(conn: Connection[Any], advances: Sequence[tuple[Sequence[int], Advance]]) -> None:
    """Move high-water marks and next slots, each for one or many jobs."""
    if advances:
        conn.execute(sql("tick_advance"), columns(advances, Advance), prepare=False)


def columns(values: Sequence[tuple[Sequence[int], Any]], kind: type[SlotRow | Advance]) -> dict[str, str]:
    """Turn rows, one at least, into the parallel arrays that the set-based statements take (`slot` -> `slots`)."""
    every = dict(zip(kind._fields, zip(*[row for _, row in values], strict=True), strict=True))
    # nearly always: and the same texts twice would cost both sides
    if kind is SlotRow and every["available_at"] == every["slot"]:
        every["available_at"] = ()
    arrays = {f"{name}s": literal(column) for name, column in every.items()}
    return {"job_ids": literals(jobs for jobs, _ in values), **arrays}


def refused(error: DatabaseError) -> bool:
    """May it be the fault of a row that a statement wrote, so that it goes through without that row? Yes, but for what
    is about the session, or about another transaction."""
    others = (Reaction.VALUE, Reaction.BUG, Reaction.BACK_OFF, Reaction.CONFIGURATION)
    return error.sqlstate is not None and classify(error) in others


def own_value(error: DatabaseError) -> bool:
    """Does it name a value of the job, so that nothing but an edit of the job mends it? (pgsched.raise_bad_value)"""
    found = error.diag
    named = found.column_name is not None and found.constraint_name is None
    return error.sqlstate == CHECK_VIOLATION and found.schema_name == "pgsched" and named


def slot_taken(error: DatabaseError) -> bool:
    """Has a slot that was to be inserted its row already? (While REINDEX CONCURRENTLY is at work, the index has other
    names beside its own, which begin with it.)"""
    return error.sqlstate == UNIQUE_VIOLATION and (error.diag.constraint_name or "").startswith("runs_slot")


def end_open_runs(conn: Connection[Any], jobs: dict[int, bool]) -> set[int]:
    """End the unfinished runs of these jobs; the value says whether running ones are terminated or asked.

    Returns the jobs that keep their runs for now, because another transaction has locked one of them.
    """
    if not jobs:
        return set()
    params = {"job_ids": list(jobs), "terminates": list(jobs.values())}
    return {row["job_id"] for row in fetch(conn, "tick_replace", params) if row["job_id"] is not None}


def nobody(_: str) -> Sequence[int]:
    """Nothing is set aside."""
    return ()


def admit(conn: Connection[Any], n: int, aside: Aside = nobody, since: Instants = EVER) -> int:
    """End what may no longer start, then make due and unblocked held runs claimable, but for what was due before
    `since`; returns how many of both. `aside`: the runs that are left as they are, by the names in ADMITTING."""
    return sum(admit_step(conn, step, n, aside(name), since) for step, name in ADMITTING.items())


def admit_step(conn: Connection[Any], step: str, n: int, aside: Sequence[int] = (), since: Instants = EVER) -> int:
    """One of the statements in ADMITTING; returns how many runs it changed."""
    (found,) = fetch(conn, step, admitting(n, aside, since, act=True))
    return int(found["done"])


def admit_first(conn: Connection[Any], step: str, aside: Sequence[int] = ()) -> int | None:
    """The run that such a statement would begin with."""
    (found,) = fetch(conn, step, admitting(1, aside, EVER, act=False))
    return None if found["first"] is None else int(found["first"])


def admitting(n: int, aside: Sequence[int], since: Instants, *, act: bool) -> dict[str, Any]:
    """What the statements in ADMITTING take."""
    begins = {"scheduled_s": since.scheduled_s, "expires_s": since.expires_s, "held_s": since.held_s}
    return {"n": n, "aside": literal(aside), "act": act} | begins
