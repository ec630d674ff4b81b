"""Record the slots that an edit or a resume of a job passed over.

Invariant: slots that were passed over end in one row that gives the reason, their range and their count.

A trigger notes the stretch, in the transaction of the edit. Only the leader can compute which slots lie in it. Where a
slot has its row already (a backfill's), the stretch is recorded in parts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from pgsched import log
from pgsched.core.planning.catchup import Decision
from pgsched.core.planning.intervals import uncovered_parts
from pgsched.core.planning.job_schedule import job_schedule
from pgsched.core.planning.plan import SlotRow
from pgsched.core.planning.slot_intervals import interval_of
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.jobs.shared_calendars import add_times_of_calendars
from pgsched.db.queries.leader import backfills, ticks
from pgsched.errors import PgschedError
from pgsched.leader.isolation.bisecting import write_bisecting

logger = log.get("leader")
BATCH = 200


def record_stretches(conn: Connection[Any], n: int = BATCH, set_aside_ids: Sequence[int] = ()) -> int:
    """Turn a batch of stretches into rows, in the caller's transaction; return how many stretches there were.

    Stretches in `set_aside_ids` stay.
    """
    stretches = add_times_of_calendars(conn, backfills.take_passed_over(conn, n, set_aside_ids))
    slots: list[tuple[tuple[int], SlotRow]] = []
    slots_of_job: dict[int, set[datetime]] = {}  # two stretches of a job may share a slot
    for stretch in stretches:
        mine = slots_of_job.setdefault(stretch["job_id"], set())
        rows = build_rows(stretch, mine.union(stretch["known"]))
        mine.update(row.slot for row in rows)
        slots += [((stretch["job_id"],), row) for row in rows]
    write_bisecting(conn, slots, lambda some: ticks.insert_slots(conn, some), log_refused_row)
    return len(stretches)


def first_stretch(conn: Connection[Any], set_aside_ids: Sequence[int]) -> int | None:
    """Return the id of the stretch that `record_stretches` would begin with."""
    return backfills.first_passed_over(conn, set_aside_ids)


def log_refused_row(slot: tuple[tuple[int], SlotRow], error: DatabaseError) -> None:
    """Log a row whose value the database refuses; the other rows are written.

    Raises any other error. Where the slot got its row meanwhile, the next round records the stretch around that row.
    """
    if not ticks.is_bad_value(error):
        raise error
    (job,), row = slot
    logger.error("the database refuses the row of slots that were passed over", job=job, slot=str(row.slot),
                 error=first_line(error))  # fmt: skip


def build_rows(stretch: dict[str, Any], known: Collection[datetime]) -> list[SlotRow]:
    """Return the rows of a stretch, each at the newest of its slots; none if all its slots have rows."""
    state, reason, end = stretch["state"], stretch["reason"], stretch["until_at"]
    if stretch["schedule"] is None:  # a job that runs once
        return [] if end in known else [SlotRow(end, state, end, reason=reason)]
    try:
        schedule = job_schedule(stretch)
        found = list(uncovered_parts(schedule, stretch["after_at"], end, [(slot, slot) for slot in known]))
    except PgschedError as error:  # a schedule that cannot be read never had a slot
        logger.warning("passed over", job=stretch["job_id"], error=str(error))
        return []
    rows = []
    for first, newest, count in found:
        one = interval_of(schedule, Decision(newest, state, reason, first, newest, count))
        rows.append(
            SlotRow(newest, state, newest, reason=reason, covers_from=first, covers_until=newest, covers_count=count,
                    interval_start=one.interval_start, nominal_at=one.nominal_at)
        )  # fmt: skip
    return rows
