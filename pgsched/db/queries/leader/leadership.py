"""What only the leader writes. Every function takes the connection first and commits nothing.

The session lock chooses a leader; `fence` proves it inside the very transaction that writes, so that a leader frozen
for hours, or two clients behind one pooled session, cannot both write.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.planning.plan import Advance, SlotRow
from pgsched.db.arrays import literal, literals
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import Reaction, classify
from pgsched.db.rows import fetch
from pgsched.db.statements import sql

# a row of `tick_due` in sql/ticks.sql: id, now, mark, anchor, dated, shape
Due = tuple[int, datetime, datetime | None, datetime | None, bool, str]
# a row of `plans_look` in sql/ticks.sql: id, schedule, timezone, mark, next_run_at
Planned = tuple[int, str | None, str, datetime, datetime]
# a job, and the first and the last slot of a stretch or a row of it
Known = tuple[int, datetime, datetime]
CANCELED = "57014"  # by statement_timeout
UNIQUE_VIOLATION = "23505"


class NotLeading(Exception):
    """The fence turned this process away: another term has begun, or another leader is inside a transaction."""


def try_lead(conn: Connection[Any]) -> bool:
    """Stand for leader; True when this session holds the lock now. False on a standby."""
    row = conn.execute(sql("leader_try")).fetchone()
    return bool(row and row[0])


def candidates(conn: Connection[Any]) -> int:
    """How many stand for leader in this database, the leader and the one that asks among them."""
    row = conn.execute(sql("leader_candidates")).fetchone()
    return int(row[0]) if row else 1


def vacant(conn: Connection[Any], gone_s: float) -> bool:
    """Has the newest term resigned, or not been seen for `gone_s` seconds? False on a standby."""
    row = conn.execute(sql("leader_vacant"), {"gone_s": gone_s}).fetchone()
    return bool(row and row[0])


def fence(conn: Connection[Any], term: int | None) -> None:
    """First call of every leader transaction. Raises NotLeading unless `term` is the newest (None: electing)."""
    locked = conn.execute(sql("leader_fence")).fetchone()
    if not locked or not locked[0]:
        raise NotLeading("another leader is inside a transaction")
    if term is None:
        return
    # a statement of its own, with a snapshot that is younger than the lock
    if (found := newest(conn)) != term:
        raise NotLeading(f"term {term} has ended: term {found} leads")


def newest(conn: Connection[Any]) -> int | None:
    """The newest term, None: nobody ever led."""
    row = conn.execute(sql("leader_term")).fetchone()
    return row[0] if row else None


def elect(conn: Connection[Any], holder: str) -> tuple[int, float]:
    """Begin a new term. Returns (term, seconds to wait before reaping: the longest lease in use, 0 if none). Jobs whose
    time zone the leader before did not know are due again."""
    conn.execute(sql("tick_again"))
    row = conn.execute(
        sql("leader_elect"), {"holder": holder, "hostname": socket.gethostname(), "pid": os.getpid()}
    ).fetchone()
    assert row is not None
    return int(row[0]), float(row[1] or 0)


def leases(conn: Connection[Any]) -> tuple[float, float]:
    """The shortest and the longest lease of this fleet in seconds, 0 without workers."""
    row = conn.execute(sql("lease_longest")).fetchone()
    return (float(row[0]), float(row[1])) if row and row[0] is not None else (0.0, 0.0)


def seen(conn: Connection[Any], term: int, *, resign: bool = False) -> None:
    """Renew the leader row of `term`, or close it."""
    conn.execute(sql("leader_seen"), {"term": term, "resign": resign})


def unlock(conn: Connection[Any]) -> None:
    """Give the session lock back and wake the candidates."""
    conn.execute(sql("leader_resign"))


def due_jobs(conn: Connection[Any], n: int, lead_s: float = 0.0) -> list[Due]:
    """Lock up to `n` jobs that are due, within `lead_s` seconds if none is now: `tick_due` in sql/ticks.sql."""
    return conn.execute(sql("tick_due"), {"n": n, "lead_s": lead_s}).fetchall()


def planned(conn: Connection[Any], after: int, n: int) -> list[Planned]:
    """The next `n` jobs behind an id, with the next slot that was planned for each: `plans_look` in sql/ticks.sql."""
    return conn.execute(sql("plans_look"), {"after": after, "n": n}).fetchall()


def plan_again(conn: Connection[Any], jobs: Sequence[tuple[int, datetime]]) -> int:
    """Let jobs be planned again, each given with the next slot that was read of it; returns how many will be."""
    job_ids, next_run_ats = (literal(column) for column in zip(*jobs, strict=True))
    return conn.execute(sql("plans_again"), {"job_ids": job_ids, "next_run_ats": next_run_ats}).rowcount


def seconds_until(conn: Connection[Any], at: datetime) -> float:
    """Seconds until `at` on the database's clock; negative when it has passed."""
    row = conn.execute(sql("tick_wait"), {"at": at}).fetchone()
    assert row is not None
    return float(row[0])


def terms(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """What the schedules and policies of these jobs say; see `tick_terms` in sql/ticks.sql for the columns."""
    return {row["id"]: row for row in fetch(conn, sql("tick_terms"), {"job_ids": literal(jobs)})}


def unfinished(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """How many runs of these jobs are open and held, and the newest of them; jobs without any are left out."""
    return {row["job_id"]: row for row in fetch(conn, sql("tick_open"), {"job_ids": literal(jobs)})} if jobs else {}


def crossed(conn: Connection[Any], jobs: Sequence[int], at: datetime) -> bool:
    """Has one of these jobs an unfinished run beside that of its slot `at`?"""
    row = conn.execute(sql("tick_crossed"), {"job_ids": literal(jobs), "at": at}).fetchone() if jobs else None
    return bool(row and row[0])


def finished(conn: Connection[Any], jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """When the last run of each of these jobs ended."""
    return {row["job_id"]: row for row in fetch(conn, sql("tick_finished"), {"job_ids": literal(jobs)})} if jobs else {}


def known_slots(conn: Connection[Any], stretches: Sequence[tuple[int, datetime, datetime]]) -> set[Known]:
    """The rows that there are for slots in these (job, first, last): (job, first, last) that each stands for."""
    columns = [literal(column) for column in zip(*stretches, strict=True)]
    values = dict(zip(("job_ids", "firsts", "lasts"), columns, strict=True)) if stretches else {}
    return set(conn.execute(sql("tick_known"), values).fetchall()) if stretches else set()


def insert_slots(conn: Connection[Any], slots: Sequence[tuple[Sequence[int], SlotRow]]) -> int:
    """Make the rows of decided slots, each for one or many jobs; returns how many are new.

    The rest of an excluded stretch goes to the row it has. Raises DatabaseError; `slot_taken` tells whether a slot has
    its row already.
    """
    extended = extend_slots(conn, [(jobs[0], row) for jobs, row in slots if row.extend is not None])
    new = [(jobs, row) for jobs, row in slots if row.extend is None or (jobs[0], row.slot) not in extended]
    if not new:
        return 0
    row = conn.execute(sql("tick_insert"), columns(new, SlotRow), prepare=False).fetchone()
    return int(row[0]) if row else 0


def extend_slots(conn: Connection[Any], slots: Sequence[tuple[int, SlotRow]]) -> set[tuple[int, datetime]]:
    """Let the rows of excluded stretches that go on grow; returns the (job, slot) that need no row of their own."""
    if not slots:
        return set()
    values = {**columns([((), row) for _, row in slots], SlotRow), "job_ids": literal(job for job, _ in slots)}
    return set(conn.execute(sql("tick_extend"), values).fetchall())


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
    """Is it the fault of a row that a statement wrote, so that the statement does without that row?"""
    return error.sqlstate is not None and classify(error) is Reaction.VALUE


def slot_taken(error: DatabaseError) -> bool:
    """Has a slot that was to be inserted its row already? (While REINDEX CONCURRENTLY is at work, the index has other
    names beside its own, which begin with it.)"""
    return error.sqlstate == UNIQUE_VIOLATION and (error.diag.constraint_name or "").startswith("runs_slot")


def end_open_runs(conn: Connection[Any], jobs: dict[int, bool]) -> set[int]:
    """End the unfinished runs of these jobs; the value says whether running ones are terminated or asked.

    Returns the jobs of which nothing was ended, because somebody holds one of their runs.
    """
    if not jobs:
        return set()
    params = {"job_ids": list(jobs), "terminates": list(jobs.values())}
    return {row[0] for row in conn.execute(sql("tick_replace"), params).fetchall() if row[0] is not None}


def admit(conn: Connection[Any], n: int) -> int:
    """End what may no longer start, then make due and unblocked held runs claimable; returns how many of both."""
    ended = conn.execute(sql("runs_expire"), {"n": n}).rowcount
    due = conn.execute(sql("admit_scheduled"), {"n": n}).fetchone()
    free = conn.execute(sql("admit_waiting"), {"n": n}).fetchone()
    return ended + int(due[0] if due else 0) + int(free[0] if free else 0)


def astray(
    conn: Connection[Any], n: int, before_s: float | None = None, *, long: bool = False
) -> tuple[list[int], list[int]]:
    """Up to `n` running runs: those whose lease had ended at `before_s` (database's clock, since 1970; None: now), and
    those whose lease is too long, if they are asked for. Reads all that is queued or running."""
    rows = conn.execute(sql("lease_look"), {"n": n, "before_s": before_s, "long": long}).fetchall()
    return [run_id for run_id, expired in rows if expired], [run_id for run_id, expired in rows if not expired]


def astray_within(
    conn: Connection[Any], seconds: float, n: int, before_s: float | None, *, long: bool
) -> tuple[list[int], list[int]] | None:
    """The same; None if it takes longer than so many seconds."""
    try:
        with conn.transaction():
            conn.execute("SELECT set_config('statement_timeout', %s, true)", [f"{seconds * 1000:.0f}"])
            return astray(conn, n, before_s, long=long)
    except DatabaseError as error:
        if error.sqlstate != CANCELED:
            raise
        return None


def shorten_leases(conn: Connection[Any], ids: Sequence[int]) -> int:
    """None of these claims is believed for longer than a lease from now; returns how many were."""
    return conn.execute(sql("lease_shorten"), {"ids": literal(ids)}).rowcount


def reap(
    conn: Connection[Any], ids: Sequence[int], crash_limit: int, before_s: float | None = None
) -> list[dict[str, Any]]:
    """Take back those of these claims whose lease had ended at `before_s` (as in `astray`); for the columns
    see `reap` in sql/reaper.sql."""
    return fetch(conn, sql("reap"), {"ids": literal(ids), "crash_limit": crash_limit, "before_s": before_s})


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to do; see `leader_look` in sql/leadership.sql. `wait_s`: seconds until something is due, None if
    never; `now_s`: the database's clock, since 1970."""

    wait_s: float | None
    jobs: bool
    runs: bool
    waiting: bool
    silent: bool
    passed_over: bool
    backfills: bool
    limited: bool
    unapplied: bool
    ended: bool
    now_s: float


def look(
    conn: Connection[Any], term: int, *, searched_s: float = 0.0, count: bool = False, lead_s: float = 0.0
) -> Look:
    """Ask what is due (jobs: within `lead_s` seconds), and say that the term is alive."""
    values = {"term": term, "searched_s": searched_s, "count": count, "lead_s": lead_s}
    row = conn.execute(sql("leader_look"), values).fetchone()
    assert row is not None
    return Look(*row)
