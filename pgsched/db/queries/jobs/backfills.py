"""Backfills as an operator asks for them, previews them, watches them and ends them; the leader does the work.

The rule: only decided slots can be asked for. Those after the high-water mark are the schedule's to decide, so that no
slot has two masters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from pgsched.core.model import Row
from pgsched.core.planning import backfill
from pgsched.core.planning.backfill import Choice
from pgsched.core.schedule import zones
from pgsched.core.schedule.calendar import Calendar, calendar
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import explained
from pgsched.db.queries.jobs import jobs
from pgsched.db.rows import fetch, one, rows
from pgsched.errors import InputError, NotFound

INSTANT = timedelta(microseconds=1)
AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: the slots of a job in [start, end), as ISO texts in the job's zone or with an offset."""

    start: str
    end: str
    mode: str = "missing"
    max_active: int = 1
    reverse: bool = False
    priority: int = 9


@dataclass(frozen=True, slots=True)
class Range:
    """A request that is possible. `undecided_from`: where it was cut off, because later slots are not decided yet."""

    job: Row
    schedule: Schedule
    start: datetime
    end: datetime
    slots: int
    undecided_from: datetime | None


def add(conn: Connection[Any], name: str, request: Request) -> Row:
    """Ask for a backfill; returns it as `show` does."""
    found = ranged(jobs.show(conn, name), request)
    values = {
        **{"job": found.job["name"], "from_at": found.start, "to_at": found.end, "mode": request.mode},
        **{"max_active": request.max_active, "reverse": request.reverse, "priority": request.priority},
    }
    added = one(conn, "backfill_add", values)
    assert added is not None
    # the leader counts them for itself
    return show(conn, added["id"]) | {"slots": found.slots, "undecided_from": found.undecided_from}


def ranged(job: Row, request: Request) -> Range:
    """The request's slots, or InputError that says why there are none to ask for."""
    if request.mode not in backfill.MODES:
        raise InputError(f'mode: "{request.mode}" is not one of {", ".join(backfill.MODES)}', "mode")
    if job["schedule"] is None or job["schedule"].lstrip().lower().startswith("@after"):
        raise InputError(
            f"job {job['name']} has no schedule whose past slots are known: only cron and @every have them"
        )
    tz = zones.zone(job["timezone"])
    start, end = backfill.instant("from", request.start, tz), backfill.instant("to", request.end, tz)
    if start >= end:
        raise InputError(f"to: {request.end} is not later than {request.start}", "to")
    decided = min(job["now"], (job["decided_until"] or start) + INSTANT)
    schedule = parse(job["schedule"], job["timezone"], job["anchor_at"])
    cut = min(end, decided)
    found = backfill.count(schedule, start, cut) if start < cut else 0
    if not found:
        later = "; slots after that are the schedule's to decide" if end > decided else ""
        raise InputError(f"job {job['name']} has no decided slot in that range: "
                         f"{job['schedule']} ({job['timezone']}) is decided until {told(decided)}{later}")  # fmt: skip
    further = cut < end and next(schedule.between(cut - INSTANT, end - INSTANT), None) is not None
    return Range(job, schedule, start, cut, found, cut if further else None)


def told(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def preview(conn: Connection[Any], name: str, request: Request) -> tuple[Range, list[Choice]]:
    """Every slot that the request asks for, with its decision as of now; nothing is written."""
    found = ranged(jobs.show(conn, name), request)
    walk = backfill.slots(found.schedule, found.start, found.end, reverse=request.reverse)
    choices: list[Choice] = []
    with explained(), conn.transaction():
        dates = left_out(conn, found.job["id"], found.job["timezone"])
        while piece := list(islice(walk, AT_ONCE)):
            choices += decided(conn, found.job["id"], request.mode, piece, dates)
    return found, choices


def decided(conn: Connection[Any], job_id: int, mode: str, slots: Sequence[datetime], dates: Calendar) -> list[Choice]:
    """The decision for each of some slots of a job, from the rows that there are."""
    return backfill.choices(mode, slots, evidence(conn, job_id, slots), dates)


def evidence(conn: Connection[Any], job_id: int, slots: Sequence[datetime]) -> list[Row]:
    """The rows that bear on some slots of a job, in the caller's transaction: `backfill_rows` in sql/backfills.sql."""
    # a queue table's statistics are stale by nature: told of few rows, the planner would fetch and sort them all
    conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off")
    return fetch(conn, "backfill_rows", {"job_id": job_id, "slots": list(slots)})


def left_out(conn: Connection[Any], job_id: int, timezone: str) -> Calendar:
    """The dates that a job leaves out."""
    found = fetch(conn, "backfill_calendar", {"job_id": job_id})
    return calendar([(row["from_date"], row["until_date"], row["reason"]) for row in found], timezone)


def show(conn: Connection[Any], backfill_id: int) -> Row:
    """One backfill, with how its runs stand."""
    found = one(conn, "backfill_show", {"id": checked(backfill_id), "n": 1})
    if found is None:
        raise unknown(backfill_id)
    return found


def list_backfills(conn: Connection[Any], n: int = 50) -> list[Row]:
    """The newest backfills first."""
    return rows(conn, "backfill_show", {"id": None, "n": n})


def cancel(conn: Connection[Any], backfill_id: int, reason: str | None = None) -> str:
    """End a backfill with its open runs: `cancelled`, or `finished` if it had ended already."""
    found = one(conn, "backfill_cancel", {"id": checked(backfill_id), "reason": reason})
    if found is None or found["what"] is None:
        raise unknown(backfill_id)
    return str(found["what"])


def checked(backfill_id: int) -> int:
    """The id, or NotFound where no backfill can have it."""
    if not 0 < backfill_id < 2**63:
        raise unknown(backfill_id)
    return backfill_id


def unknown(backfill_id: int) -> NotFound:
    """There is no such backfill."""
    return NotFound(f"there is no backfill {backfill_id}: `pgsched backfill list` shows those that exist")
