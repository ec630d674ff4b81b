"""Backfills: start the runs of open backfills slot by slot, within the number of open runs that each may have.

Invariant: a backfill continues slot by slot whichever process leads, and never has more than `max_active` runs open.

One batch is one fenced transaction: it locks the backfill's row, starts runs, and moves the cursor past them. Open runs
are counted from the runs themselves. The job's high-water mark and overlap policy play no part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgsched import log
from pgsched.core.model import Row
from pgsched.core.planning.backfill import Choice, Late, batch, count_on, first_startable
from pgsched.core.planning.job_schedule import job_calendar, whole_schedule
from pgsched.core.schedule.base import Schedule
from pgsched.core.schedule.shifted import Shifted
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.backfills import decide_slots, excluded_by_job
from pgsched.db.queries.leader import backfills
from pgsched.errors import InputError, PgschedError
from pgsched.leader.isolation.duty_guard import ends_session, is_conflict

logger = log.get("leader")
BACKFILLS = 20  # backfills that one round works on
MAX_READ = 2000  # open backfills that a round reads; nearly always all of them
SLOTS = 500  # of one batch
LONGEST_S = 0.1  # the tick must have its turn
SHORTEST_PAUSE_S = 0.1  # how late the end of a short run may be noticed
LONGEST_PAUSE_S = 1.0


@dataclass
class BackfillCursor:
    """Position of a leader among the open backfills.

    `after`: id of the backfill that was read last.
    `moved_at`: monotonic instant at which a backfill last went on.
    `counting`: by id of a backfill whose slots are being counted: the number found, and the instant counted up to.
    """

    after: int = 0
    moved_at: float = -math.inf
    counting: dict[int, tuple[int, datetime]] = field(default_factory=dict)

    def pause_s(self) -> float:
        """Return the seconds until the next look: about as long as nothing has moved, so long runs cost no polling."""
        return min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, time.monotonic() - self.moved_at))


@dataclass
class BackfillResult:
    """Result of one round.

    `more`: more can be done at once.
    `advanced`: how many backfills went on.
    `failed`: by id of a backfill, the error with which it failed.
    """

    more: bool = False
    advanced: int = 0
    failed: dict[int, Exception] = field(default_factory=dict)


def run_backfills(
    conn: Connection[Any], turn: BackfillCursor | None = None, set_aside_ids: Sequence[int] = ()
) -> BackfillResult:
    """Start the runs that the open backfills may start, in the caller's transaction.

    Backfills in `set_aside_ids` wait. A backfill that is blocked now (a run or the job is locked) must not stop the
    others.
    """
    turn, done = turn or BackfillCursor(), BackfillResult()
    until = time.monotonic() + LONGEST_S
    looked = backfills.open_backfills(conn, BACKFILLS, MAX_READ, turn.after, set_aside_ids)
    found = [row for row in looked if row["id"] is not None]
    for place, wanted in enumerate(found):
        if place and time.monotonic() > until:  # do at least one, however long the query took
            done.more = True
            break
        turn.after = wanted["id"]
        try:
            with conn.transaction():
                done.more |= run_batch(conn, wanted, turn, lambda: time.monotonic() > until)
        except Exception as error:
            if ends_session(conn, error):
                raise
            if is_conflict(error):
                logger.debug("backfill waits", id=wanted["id"], error=str(error))
            else:
                done.failed[wanted["id"]] = error
        else:
            done.advanced += 1
            turn.moved_at = time.monotonic()
    if not done.more and len(found) < BACKFILLS:
        turn.after = looked[0]["last"] or turn.after
    return done


def run_batch(conn: Connection[Any], wanted: Row, turn: BackfillCursor, late: Late) -> bool:
    """Do one batch of one backfill; return whether it can go on at once.

    It can where there is still room for runs, or where time ran out (`late`) before its slots were counted or read.
    """
    if not wanted["job_exists"]:
        return close_backfill(conn, wanted, f"job {wanted['job']} was deleted")
    try:
        job = wanted | excluded_by_job(conn, wanted["job_id"]) | {"run_at": None}
        schedule = whole_schedule(job)
        if wanted["slots"] is None and not count_slots(conn, wanted, schedule, turn, late):
            return True
        found = batch(schedule, wanted, SLOTS, late)
    except PgschedError as error:
        return close_backfill(conn, wanted, str(error))
    if not found.slots:
        if found.over:
            return False if wanted["active"] else close_backfill(conn, wanted, None)
        save_position(conn, wanted, cursor_at=found.cursor)
        return True
    room = wanted["max_active"] - wanted["active"]
    decided = decide_slots(conn, wanted["job_id"], wanted["mode"], found.slots, job_calendar(job), schedule)
    chosen = first_startable(decided, room)
    started = start_runs(conn, wanted, chosen, schedule)
    save_position(conn, wanted, cursor_at=chosen[-1].slot, considered=len(chosen), started=started)
    return bool(started < room)


def count_slots(conn: Connection[Any], wanted: Row, schedule: Schedule, turn: BackfillCursor, late: Late) -> bool:
    """Count the slots of a backfill from where earlier rounds stopped; return whether the count is complete.

    Raises InputError where there are too many slots, or none.
    """
    found, since = turn.counting.pop(wanted["id"], (0, wanted["from_at"]))
    found, until = count_on(schedule, since, wanted["to_at"], found, late)
    if until < wanted["to_at"]:
        turn.counting[wanted["id"]] = (found, until)
        return False
    if not found:
        raise InputError("there is no slot in that range")
    backfills.set_slots(conn, wanted["id"], found)
    return True


def start_runs(conn: Connection[Any], wanted: Row, chosen: Sequence[Choice], schedule: Schedule) -> int:
    """Create or revive the runs of the chosen slots; return how many."""
    starts = interval_starts(schedule, [choice.slot for choice in chosen], reverse=wanted["reverse"])
    new = [choice.slot for choice in chosen if choice.action == "run"]
    again = {choice.run_id: starts[choice.slot] for choice in chosen if choice.action == "again"}
    nominals = [schedule.nominal_of(slot) if isinstance(schedule, Shifted) else None for slot in new]
    inserted = backfills.insert_runs(conn, wanted, new, [starts[slot] for slot in new], nominals)
    return inserted + backfills.rerun(conn, wanted, list(again), list(again.values()))


def interval_starts(schedule: Schedule, slots: Sequence[datetime], *, reverse: bool) -> dict[datetime, datetime | None]:
    """Return the slot before each of these slots, which follow each other."""
    rising = slots[::-1] if reverse else slots
    first = {rising[0]: schedule.before(rising[0])} if rising else {}
    return first | dict(zip(rising[1:], rising[:-1], strict=True))


def close_backfill(conn: Connection[Any], wanted: Row, error: str | None) -> bool:
    """Close a backfill because nothing is left to start, or because of an error; return False."""
    save_position(conn, wanted, finished=True, error=error)
    logger.info("backfill ended", id=wanted["id"], job=wanted["job"], error=error)
    return False


def save_position(
    conn: Connection[Any], wanted: Row, *, cursor_at: Any = None, considered: int = 0, started: int = 0,
    finished: bool = False, error: str | None = None,
) -> None:  # fmt: skip
    """Record how far a backfill is."""
    backfills.advance(conn, wanted["id"], cursor_at, considered, started, finished, error)
