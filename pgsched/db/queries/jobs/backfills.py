"""Backfills as an operator uses them: request, preview, show, list, cancel. The leader makes their runs.

Invariant: only decided slots can be requested. The slots after the high-water mark are left to the schedule, so that
each slot is decided in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from pgsched.core.model import Row
from pgsched.core.planning import backfill
from pgsched.core.planning.backfill import Choice
from pgsched.core.planning.job_schedule import job_calendar, whole_schedule
from pgsched.core.schedule import zones
from pgsched.core.schedule.base import Schedule
from pgsched.core.schedule.calendar import Calendar
from pgsched.core.schedule.shifted import Shifted
from pgsched.core.schedule.shifting_days import LOOK_AROUND
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import raise_explained
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.jobs.shared_calendars import add_times_of_calendars
from pgsched.db.rows import fetch, first_row, rows
from pgsched.errors import InputError, NotFound

INSTANT = timedelta(microseconds=1)  # PostgreSQL's resolution
SLOTS_PER_STATEMENT = 1000  # slots whose rows are read by one statement


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a backfill: which slots of a job in [start, end) are to run again.

    `start`, `end`: ISO texts, in the job's time zone unless they have an offset
    `mode`: missing (no run of the slot started), failed (a run started and did not succeed), unsuccessful (both) or all
    `max_active`: how many runs of the backfill may be open at once
    `reverse`: the newest slot first
    `priority`: of the runs, 0 to 9
    """

    start: str
    end: str
    mode: str = "missing"
    max_active: int = 1
    reverse: bool = False
    priority: int = 9


@dataclass(frozen=True, slots=True)
class Range:
    """A valid request, applied to its job.

    `job`: the job's row, as `jobs.show` returns it
    `schedule`: the job's parsed schedule
    `start`, `end`: the requested range, cut off behind the last decided slot
    `asked_end`: its end before that
    `slots`: how many slots lie in it
    `undecided_from`: where the range was cut off, because later slots are not decided yet; None if it was not
    """

    job: Row
    schedule: Schedule
    start: datetime
    end: datetime
    slots: int
    undecided_from: datetime | None
    asked_end: datetime


def add_backfill(conn: Connection[Any], name: str, request: Request) -> Row:
    """Add a backfill of the job `name`; return it as `show_backfill` does, with `slots` and `undecided_from`.

    Raises InputError where `resolve_range` does, and NotFound for an unknown job.
    """
    found = resolve_range(jobs.show_planned_job(conn, name), request)
    values = {
        **{"job": found.job["name"], "from_at": found.start, "to_at": found.end, "mode": request.mode},
        **{"max_active": request.max_active, "reverse": request.reverse, "priority": request.priority},
    }
    added = first_row(conn, "backfill_add", values)
    assert added is not None
    # the new row has no count of slots: the leader counts them itself
    return show_backfill(conn, added["id"]) | {"slots": found.slots, "undecided_from": found.undecided_from}


@dataclass(frozen=True, slots=True)
class Plan:
    """Backfills of several jobs as one thing, for one range of time.

    `ranges`: of each job, in the order in which they are done; the jobs that a job waits for come before it
    `left_out`: why the other jobs have no part in it, by name
    """

    ranges: list[Range]
    left_out: dict[str, str]


def plan_in_order(conn: Connection[Any], name: str, request: Request, *, upstream: bool, downstream: bool) -> Plan:
    """Plan the backfill of a job with the jobs that it waits for (`upstream`), and that wait for it (`downstream`).

    A range that is given in wall-clock time is read in the time zone of the job `name`, for all of them. Other jobs
    without a decided slot in it are left out. Raises InputError where the job itself has none, and NotFound.
    """
    job = jobs.show_planned_job(conn, name)
    first = resolve_range(job, request)
    tz = zones.zone(job["timezone"])
    start = backfill.parse_local_instant("from", request.start, tz)
    end = backfill.parse_local_instant("to", request.end, tz)
    whole = replace(request, start=start.isoformat(), end=end.isoformat())
    found = Plan([], {})
    asked = {"job": name, "upstream": upstream, "downstream": downstream}
    for other in first_value(conn, "backfill_jobs", asked):
        try:
            found.ranges.append(first if other == name else resolve_range(jobs.show_planned_job(conn, other), whole))
        except (InputError, NotFound) as error:
            found.left_out[other] = str(error)
    return found


def add_in_order(conn: Connection[Any], plan: Plan, request: Request) -> list[Row]:
    """Add the backfills of a plan, one after the other; return them as `add_backfill` does."""
    values = {
        **{"jobs": [one.job["name"] for one in plan.ranges], "mode": request.mode, "reverse": request.reverse},
        **{"from_at": min(one.start for one in plan.ranges), "to_at": max(one.asked_end for one in plan.ranges)},
        **{"max_active": request.max_active, "priority": request.priority},
    }
    ids = first_value(conn, "backfill_add_in_order", values)
    return [
        show_backfill(conn, new_id) | {"slots": one.slots, "undecided_from": one.undecided_from}
        for new_id, one in zip(ids, plan.ranges, strict=True)
    ]


def first_value(conn: Connection[Any], statement: str, values: dict[str, Any]) -> list[Any]:
    """Return the only value that a statement returns, an array."""
    row = first_row(conn, statement, values)
    assert row is not None
    (found,) = row.values()
    return list(found)


def resolve_range(job: Row, request: Request) -> Range:
    """Apply a request to its job.

    Raises InputError, with the reason, where the request is not valid or selects no decided slot.
    """
    if request.mode not in backfill.MODES:
        raise InputError(f'mode: "{request.mode}" is not one of {", ".join(backfill.MODES)}', "mode")
    if job["schedule"] is None or job["schedule"].lstrip().lower().startswith("@after"):
        raise InputError(
            f"job {job['name']} has no schedule whose past slots are known: only cron and @every have them"
        )
    tz = zones.zone(job["timezone"])
    start, end = (
        backfill.parse_local_instant("from", request.start, tz),
        backfill.parse_local_instant("to", request.end, tz),
    )
    if start >= end:
        raise InputError(f"to: {request.end} is not later than {request.start}", "to")
    decided = min(job["now"], (job["decided_until"] or start) + INSTANT)
    schedule = whole_schedule(job)
    cut = min(end, decided)
    found = backfill.count(schedule, start, cut) if start < cut else 0
    if not found:
        later = "; slots after that are the schedule's to decide" if end > decided else ""
        raise InputError(
            f"job {job['name']} has no decided slot in that range: "
            f"{job['schedule']} ({job['timezone']}) is decided until {format_instant(decided)}{later}"
        )
    further = cut < end and next(schedule.between(cut - INSTANT, end - INSTANT), None) is not None
    return Range(job, schedule, start, cut, found, cut if further else None, end)


def format_instant(instant: datetime) -> str:
    """Format an instant as UTC text for a message."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def preview_backfill(conn: Connection[Any], name: str, request: Request) -> tuple[Range, list[Choice]]:
    """Return the range of a request, and what would happen to each of its slots now. Nothing is written."""
    found = resolve_range(jobs.show_planned_job(conn, name), request)
    return found, preview_range(conn, found, request)


def preview_range(conn: Connection[Any], found: Range, request: Request) -> list[Choice]:
    """Return what would happen to each slot of a range now. Nothing is written."""
    walk = backfill.slots(found.schedule, found.start, found.end, reverse=request.reverse)
    choices: list[Choice] = []
    with raise_explained(), conn.transaction():
        dates = job_calendar(found.job)
        while piece := list(islice(walk, SLOTS_PER_STATEMENT)):
            choices += decide_slots(conn, found.job["id"], request.mode, piece, dates, found.schedule)
    return choices


def decide_slots(
    conn: Connection[Any], job_id: int, mode: str, slots: Sequence[datetime], dates: Calendar, schedule: Schedule
) -> list[Choice]:
    """Return what a backfill would do with each of these slots of a job, judged by the rows that exist.

    `mode`: as in `Request`; `dates`: the times that the job excludes; `schedule`: that of its slots.
    """
    known = evidence(conn, job_id, slots)
    if isinstance(schedule, Shifted):
        known += shifted_evidence(conn, job_id, slots, schedule, known)
    return backfill.choices(mode, slots, known, dates)


def evidence(conn: Connection[Any], job_id: int, slots: Sequence[datetime]) -> list[Row]:
    """Return the rows that tell what became of these slots of a job: `backfill_rows` in sql/backfills.sql.

    Changes planner settings until the caller's transaction ends.
    """
    # The statistics of a queue table are always stale. Where they show few rows, the planner would fetch and sort
    # all of them.
    conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off")
    return fetch(conn, "backfill_rows", {"job_id": job_id, "slots": list(slots)})


def shifted_evidence(
    conn: Connection[Any], job_id: int, slots: Sequence[datetime], schedule: Shifted, known: Sequence[Row]
) -> list[Row]:
    """Return the rows of slots that have none at their instant, because an earlier calendar had shifted them elsewhere.

    Each row is returned as if it lay at the slot.
    """
    own = {row["scheduled_at"] for row in known}
    nominals = {schedule.nominal_of(slot) or slot: slot for slot in slots if slot not in own}
    if not nominals:
        return []
    values = {"job_id": job_id, "nominals": list(nominals), "days": LOOK_AROUND + 1}
    found = fetch(conn, "backfill_shifted_rows", values)
    return [row | {"scheduled_at": nominals[row["nominal_at"]], "covers_from": None} for row in found]


def excluded_by_job(conn: Connection[Any], job_id: int) -> Row:
    """Return what a job excludes, for core/planning/job_schedule.py; nothing where it was deleted."""
    found = fetch(conn, "backfill_calendar", {"job_id": job_id})
    return add_times_of_calendars(conn, found)[0] if found else {}


def show_backfill(conn: Connection[Any], backfill_id: int) -> Row:
    """Return one backfill, with counts of its runs by state. Raises NotFound."""
    found = first_row(conn, "backfill_show", {"id": check_id(backfill_id), "n": 1})
    if found is None:
        raise unknown_backfill(backfill_id)
    return found


def list_backfills(conn: Connection[Any], n: int = 50) -> list[Row]:
    """Return the `n` newest backfills as `show_backfill` does, newest first."""
    return rows(conn, "backfill_show", {"id": None, "n": n})


def cancel(conn: Connection[Any], backfill_id: int, reason: str | None = None) -> str:
    """End a backfill and its open runs; return `cancelled`, or `finished` if it had ended already.

    Raises NotFound where the backfill does not exist.
    """
    found = first_row(conn, "backfill_cancel", {"id": check_id(backfill_id), "reason": reason})
    if found is None or found["what"] is None:
        raise unknown_backfill(backfill_id)
    return str(found["what"])


def check_id(backfill_id: int) -> int:
    """Return the id. Raises NotFound where no backfill can have it."""
    if not 0 < backfill_id < 2**63:
        raise unknown_backfill(backfill_id)
    return backfill_id


def unknown_backfill(backfill_id: int) -> NotFound:
    """Make the error for an unknown backfill."""
    return NotFound(f"there is no backfill {backfill_id}: `pgsched backfill list` shows those that exist")
