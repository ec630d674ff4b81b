"""`explain`: collect the facts about one slot, read at one moment, for core.explain to judge.

Invariant: an instant stands for the slot that has a row at it, else for the nearest slot of the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from pgsched.core.explain import Explanation, SlotFacts, explain, without_slot
from pgsched.core.explanations import RunContext, describe_unfinished, format_instant
from pgsched.core.model import Kind, Row
from pgsched.core.planning import backfill
from pgsched.core.planning.job_schedule import job_calendar, whole_schedule
from pgsched.core.planning.plan import is_shadow, undecided_after
from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.core.schedule.shifted import Shifted
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import raise_explained
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.reports import evidence
from pgsched.db.queries.reports.name_hints import hint_offered_tasks
from pgsched.db.queries.runs import runs
from pgsched.errors import InputError, NotFound, ScheduleError
from pgsched.services.runs.waiting import explain_hold

# How far back the latest slot is searched, step by step: most schedules have one within the first step.
REACH = tuple(timedelta(days=days) for days in (0.05, 2, 40, 400, 4000, 20_000))
COUNTED = 10_000  # undecided slots that are counted at most
OVERLAPPED = re.compile(r"overlap: run (\d{1,18}) was not finished")
INSTANT = timedelta(microseconds=1)
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
Slots = tuple[datetime, tuple[datetime | None, datetime | None] | None]


def explain_slot(conn: Connection[Any], name: str, asked: str | None = None) -> Explanation:
    """Explain the slot of a job that is nearest to an instant (ISO text in the job's zone; None: the latest due)."""
    with raise_explained(), conn.transaction():
        # statistics of a queue table are stale by nature, and each query here has an index in its order
        conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        job = find_job(conn, name)
        tz = zones.zone(job["timezone"])
        instant = None if asked is None else backfill.parse_local_instant("at", asked, tz)
        moved, instant = find_shift(job, instant)
        meant = find_slot(conn, job, instant)
        found = without_slot(job, instant) if meant is None else explain(facts(conn, job, meant[0], instant, meant[1]))
    skipped = None if asked is None else backfill.describe_gap(asked, tz)
    before = ". ".join(filter(None, (skipped, moved)))
    return replace(found, text=f"{before}. {found.text}") if before else found


def find_shift(job: Row, instant: datetime | None) -> tuple[str | None, datetime | None]:
    """Return what a calendar does to the nominal slot at an instant, and the instant of its slot.

    For an instant that is no nominal slot, or is not shifted: None and the instant itself.
    """
    schedule = parse_schedule(job) if job["schedule"] is not None else None
    if instant is None or not isinstance(schedule, Shifted):
        return None, instant
    nominal = schedule.nominal.after(instant - INSTANT)
    slot = schedule.target(nominal) if nominal is not None and is_slot_at(nominal, instant) else None
    if nominal is None or slot is None or slot == nominal:
        return None, instant
    reason = replace(job_calendar(job), ending="").excluded(nominal)
    return f"{format_instant(nominal)} is {reason}: its slot lies at {format_instant(slot)}", slot


def find_job(conn: Connection[Any], name: str) -> Row:
    """Return the job of that name; or by its id a job that was deleted and has history."""
    try:
        return jobs.show_planned_job(conn, name)
    except NotFound:
        job_id = int(name) if name.isdecimal() and len(name) < 19 else 0
        newest = jobs.recent_runs(conn, job_id, 1)
        if not newest:
            raise
    job: Row = dict.fromkeys(("schedule", "run_at", "starts_at", "ends_at", "max_runs", "error", "decided_until"))
    return job | {"id": job_id, "name": f"{job_id} (deleted)", "timezone": "UTC", "paused": False, "run_count": 0,
                  "now": newest[0]["now"], "created_at": EARLIEST, "anchor_at": EARLIEST}  # fmt: skip


def find_slot(conn: Connection[Any], job: Row, instant: datetime | None) -> Slots | None:
    """Return the slot that is meant, with its neighbours if the instant is no slot.

    None for a job in error that has no slots.
    """
    if instant is not None:
        exact = evidence.slot_at(conn, job["id"], instant)
        if exact is not None:
            return exact["scheduled_at"], None
    if job["schedule"] is None and job["run_at"] is not None:
        return find_one_off_slot(conn, job, instant)
    schedule = parse_schedule(job)
    if schedule is None:
        return find_recorded_slot(conn, job, instant)
    return find_latest_slot(schedule, job) if instant is None else find_nearest_slot(schedule, instant, job)


def find_one_off_slot(conn: Connection[Any], job: Row, instant: datetime | None) -> Slots:
    """Return the slot of a job that runs once, or one that it had before an edit."""
    if instant is None:
        return job["run_at"], None
    return choose_closest([job["run_at"], *evidence.slots_near(conn, job["id"], instant)], instant, job)


def parse_schedule(job: Row) -> Schedule | None:
    """Return the job's schedule; None if its slots cannot be computed."""
    if job["schedule"] is None:
        return None
    try:
        schedule = whole_schedule(job)
    except ScheduleError:
        return None
    return None if schedule.fixed_delay is not None else schedule


def find_recorded_slot(conn: Connection[Any], job: Row, instant: datetime | None) -> Slots | None:
    """Return the nearest slot that has a row."""
    found = evidence.slots_near(conn, job["id"], instant)
    if job["error"] is not None and (instant is None or not found):
        return None
    return choose_closest(found, instant, job)


def find_latest_slot(schedule: Schedule, job: Row) -> Slots:
    """Return the latest slot that is due, or else the next one."""
    end = job["now"] if job["ends_at"] is None else min(job["now"], job["ends_at"])
    for reach in REACH:
        if (slot := schedule.last(max(end - reach, EARLIEST), end)) is not None:
            break
    if slot is None or slot <= job["created_at"] or (job["starts_at"] is not None and slot < job["starts_at"]):
        slot = schedule.after(max(job["now"], undecided_after(job))) or slot
    if slot is None:
        raise no_slots_error(job)
    return slot, None


def find_nearest_slot(schedule: Schedule, instant: datetime, job: Row) -> Slots:
    """Return the slot at an instant, or else the nearer of its neighbours."""
    following = schedule.after(instant - INSTANT)
    if following is not None and is_slot_at(following, instant):
        return following, None
    for reach in REACH:
        if (before := schedule.last(max(instant - reach, EARLIEST), instant)) is not None:
            break
    return choose_closest([slot for slot in (before, following) if slot is not None], instant, job)


def is_slot_at(slot: datetime, instant: datetime) -> bool:
    """Check whether an instant stands for this slot.

    A whole second also stands for a slot within it, because `@every` has slots at fractions of a second.
    """
    return slot == instant or (not instant.microsecond and slot.replace(microsecond=0) == instant)


def choose_closest(found: list[datetime], instant: datetime | None, job: Row) -> Slots:
    """Return the slot that an instant stands for, or else the nearer of its neighbours."""
    if not found:
        raise no_slots_error(job)
    if instant is None:
        return found[0], None
    if exact := [slot for slot in found if is_slot_at(slot, instant)]:
        return exact[0], None
    before, after = (
        max((s for s in found if s < instant), default=None),
        min((s for s in found if s > instant), default=None),
    )
    return min(found, key=lambda slot: abs(slot - instant)), (before, after)


def no_slots_error(job: Row) -> InputError:
    """Return the error for a job without slots."""
    try:
        _ = job["schedule"] and parse(job["schedule"], job["timezone"])
    except ScheduleError as error:
        return InputError(f"job {job['name']} has no slots to explain: {error}")
    return InputError(f"job {job['name']} has no slots to explain yet: {job['schedule'] or 'none is recorded'}")


def facts(conn: Connection[Any], job: Row, slot: datetime, asked: datetime | None, nearest: Any) -> SlotFacts:
    """Collect all facts about one slot."""
    run = read_row(conn, job["id"], slot)
    terms = evidence.leader_terms(conn, min(slot, job["now"] - timedelta(minutes=1)))
    passed_over = evidence.passed_over(conn, job["id"], slot) if run is None else None
    excluded = job_calendar(job).excluded(slot)
    around = RunContext() if run is None else collect_reasons(conn, run)
    return SlotFacts(
        job["now"], job, slot, asked, nearest, run, around, terms, passed_over, excluded, is_behind_last_run(job, slot)
    )


def is_behind_last_run(job: Row, slot: datetime) -> bool:
    """Check whether at least as many undecided slots as the job has runs left lie before this slot.

    At most COUNTED slots are counted.
    """
    schedule = None if job["max_runs"] is None or is_shadow(job) else parse_schedule(job)
    if schedule is None:
        return False
    start, left = undecided_after(job), int(job["max_runs"] - job["run_count"])
    if (count := schedule.count(start, slot - INSTANT)) is not None:
        return count >= left
    slots = schedule.between(start, slot - INSTANT)
    return left <= COUNTED and next(islice(slots, max(left - 1, 0), None), None) is not None


def read_row(conn: Connection[Any], job_id: int, slot: datetime) -> Row | None:
    """Return the slot's own run, else the run of the narrowest stretch in which the slot lies."""
    found = backfills.evidence(conn, job_id, [slot])
    for run in found:
        if run["scheduled_at"] == slot:
            return runs.show_run(conn, run["id"])
    wide = [
        run for run in found if run["covers_from"] is not None and run["covers_from"] <= slot <= run["covers_until"]
    ]
    narrow = min(wide, key=lambda run: run["covers_until"] - run["covers_from"], default=None)
    return None if narrow is None else runs.show_run(conn, narrow["id"])


def collect_reasons(conn: Connection[Any], run: Mapping[str, Any]) -> RunContext:
    """Return the reasons why a run has not ended yet: other runs, limits, or missing workers."""
    if run["state"] == "skipped":
        return RunContext(earlier=describe_earlier_run(conn, run))
    hold_reasons = explain_hold(conn, run)
    if run["state"] == "waiting" and run["ready_at"] is not None:
        return RunContext(held_by=hold_reasons or "the leader to release it")
    if run["state"] == "waiting" and run["available_at"] is None:
        return RunContext(parents=evidence.parents(conn, run["id"]))
    if run["state"] == "waiting":
        return RunContext(others=evidence.runs_in_front(conn, run["id"]))
    if run["state"] == "queued":
        offered = evidence.workers_offering(conn, run)
        hint = "" if offered.get("workers") or run["kind"] != Kind.TASK else hint_offered_tasks(conn, run["task"])
        return RunContext(
            live_workers=offered.get("alive", 0),
            offering_workers=offered.get("workers", 0),
            held_by=hold_reasons,
            hint=hint,
        )
    return RunContext()


def describe_earlier_run(conn: Connection[Any], run: Mapping[str, Any]) -> str | None:
    """Describe the earlier run that made overlap skip this slot, and why it has not ended.

    None where the slot was skipped for another reason, or that run has ended.
    """
    named = OVERLAPPED.match(run["reason"] or "")
    try:
        other = None if named is None else runs.show_run(conn, int(named[1]))
    except NotFound:
        return None
    if other is None or other["job_id"] != run["job_id"] or other["finished_at"] is not None:
        return None
    return describe_unfinished(other, collect_reasons(conn, other))
