"""The tick: due jobs become slots, slots become rows, exactly one row a slot.

Three guards keep a slot from firing twice: the leader's lock, the row lock with the rising high-water mark, and
UNIQUE (job_id, scheduled_at). A job that cannot be evaluated is marked with its error and stops nobody else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pgsched.core.catchup import CatchUp, Decision, decide
from pgsched.core.jitter import offset
from pgsched.core.overlap import Standing, Verdict
from pgsched.core.overlap import decide as decide_overlap
from pgsched.core.schedule import Schedule, parse
from pgsched.db import leading
from pgsched.db.connect import Connection
from pgsched.db.leading import Advance, SlotRow
from pgsched.errors import PgschedError

DELAY_RECHECK = timedelta(seconds=1)
# A batch ends early rather than outlive the session's idle timeout between its statements, or fill the memory.
MOST_SLOTS = 20_000
LONGEST_S = 2.0
Job = dict[str, Any]
Plan = tuple[list[Decision], datetime, datetime | None]


@dataclass
class Tick:
    """One batch in the making."""

    slots: list[SlotRow] = field(default_factory=list)
    advances: list[Advance] = field(default_factory=list)
    ended: dict[int, bool] = field(default_factory=dict)
    plans: dict[tuple[Any, ...], Plan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a batch did: jobs looked at, rows made, jobs in error; `more`: others may be due still."""

    jobs: int
    slots: int
    errors: int
    more: bool


def tick(conn: Connection[Any], batch: int) -> Ticked:
    """Decide one batch of due jobs in the caller's transaction."""
    jobs = leading.due_jobs(conn, batch)
    work = Tick()
    until = time.monotonic() + LONGEST_S
    for job in jobs:
        if len(work.slots) >= MOST_SLOTS or time.monotonic() > until:
            break
        try:
            decide_job(job, work)
        except PgschedError as error:
            work.advances.append(Advance(job["id"], None, None, error=str(error)))
        except Exception as error:  # one job must not stop the others, whatever is wrong with it
            work.advances.append(Advance(job["id"], None, None, error=f"schedule: {type(error).__name__}: {error}"))
    leading.end_open_runs(conn, work.ended)
    made = leading.insert_slots(conn, work.slots)
    leading.advance_jobs(conn, work.advances)
    decided, errors = len(work.advances), sum(a.error is not None for a in work.advances)
    return Ticked(decided, made, errors, more=decided < len(jobs) or decided >= batch)


def decide_job(job: Job, work: Tick) -> None:
    """Turn one job's due slots into rows, and say where it stands afterwards."""
    decisions, decided_until, next_at = plan(job, work)
    standing = Standing(job["open"], job["held"], job["newest"])
    started = 0
    rows: list[SlotRow] = []
    ends_others = False
    for decision in decisions:
        if job["max_runs"] is not None and job["run_count"] + started >= job["max_runs"]:
            break
        if decision.verdict != "run":
            rows.append(missed(job, decision))
            continue
        verdict = decide_overlap(job["overlap"], standing, job["max_buffer"])
        if verdict.ends_others:
            ends_others = True
            rows = [replaced(row) for row in rows]
            standing = Standing(0, 0)
        rows.append(due(job, decision, verdict))
        started += verdict.state != "skipped"
        standing = after(standing, verdict)
    # only now: a job that raised above leaves nothing behind
    work.slots += rows
    if ends_others:
        work.ended[job["id"]] = job["overlap"] == "terminate"
    if job["max_runs"] is not None and job["run_count"] + started >= job["max_runs"]:
        next_at = None
    work.advances.append(Advance(job["id"], decided_until, next_at, started))


def after(standing: Standing, verdict: Verdict) -> Standing:
    """How the job stands once a slot with this verdict has its row."""
    born_open = verdict.state != "skipped"
    return Standing(standing.open + born_open, standing.held + (verdict.state == "waiting"), standing.newest_id)


def plan(job: Job, work: Tick) -> Plan:
    """The decisions for everything due, the new high-water mark and the next slot."""
    if job["schedule"] is None:
        return one_off(job)
    schedule = parsed(job)
    if schedule.fixed_delay is not None:
        return fixed_delay(job, schedule.fixed_delay)
    key = (job["schedule"], job["timezone"], anchor(job), job["decided_until"],
           job["ends_at"], *policy_key(job))  # fmt: skip
    found = work.plans.get(key)
    if found is None:
        found = work.plans[key] = scheduled(job, schedule)
    return found


def parsed(job: Job) -> Schedule:
    """The job's schedule; equal ones are parsed once."""
    return parse(job["schedule"], job["timezone"], anchor(job))


def anchor(job: Job) -> datetime | None:
    """The instant that @every counts from; None for other schedules, so that equal ones are shared."""
    start: datetime = job["anchor_at"]
    return start if job["schedule"].lower().lstrip().startswith("@every") else None


def policy_key(job: Job) -> tuple[Any, ...]:
    """The columns that `catch_up_policy` reads."""
    return (job["catch_up"], job["misfire_after"], job["catch_up_window"], job["max_catch_up"], job["start_deadline"])


def catch_up_policy(job: Job) -> CatchUp:
    """The job's misfire policy as a value."""
    policy, misfire_after, window, max_runs, start_deadline = policy_key(job)
    return CatchUp(policy, misfire_after, window, max_runs, start_deadline)


def scheduled(job: Job, schedule: Schedule) -> Plan:
    """Cron and @every: all slots in (decided_until, now], cut off at ends_at."""
    now = job["now"] if job["ends_at"] is None else min(job["now"], job["ends_at"])
    decisions, decided_until, next_at = decide(
        schedule, job["decided_until"] or job["anchor_at"], now, catch_up_policy(job)
    )
    if next_at is not None and job["ends_at"] is not None and next_at > job["ends_at"]:
        next_at = None
    return decisions, decided_until, next_at


def one_off(job: Job) -> Plan:
    """run_at: one slot, decided once. Late ones run (that is what `latest` means for a single slot) unless too late."""
    slot, now, mark = job["run_at"], job["now"], job["decided_until"]
    if mark is not None and slot <= mark:
        return [], mark, None
    if slot > now:
        return [], mark or datetime(1970, 1, 1, tzinfo=UTC), slot
    late = now - slot
    reason = None
    if job["start_deadline"] is not None and late > job["start_deadline"]:
        reason = "start_deadline passed"
    elif late > job["misfire_after"] and job["catch_up"] == "skip":
        reason = "decided late and catch_up is skip"
    return [Decision(slot, "missed" if reason else "run", reason, None, None, None)], slot, None


def fixed_delay(job: Job, delay: timedelta) -> Plan:
    """@after: one slot a delay after the last run settled (or the job began); looked at again while one is open."""
    now, mark = job["now"], job["decided_until"] or job["anchor_at"]
    if job["open"]:
        return [], mark, now + DELAY_RECHECK
    # never before the mark: retention forgets the last run, and a clock may have stepped back
    slot = max(job["last_finished_at"] or mark, mark, job["anchor_at"]) + delay
    if job["ends_at"] is not None and slot > job["ends_at"]:
        return [], mark, None
    if slot > now:
        return [], mark, slot
    return [Decision(slot, "run", None, None, None, None)], max(slot, mark), now + DELAY_RECHECK


def due(job: Job, decision: Decision, verdict: Verdict) -> SlotRow:
    """The row of a slot that is to run (or is skipped for overlap)."""
    slot, now = decision.scheduled_at, job["now"]
    starts = slot + offset(job["id"], slot, job["jitter"]) if job["jitter"] else slot
    state = "scheduled" if verdict.state == "queued" and starts > now else verdict.state
    expires = slot + job["start_deadline"] if job["start_deadline"] is not None and state != "skipped" else None
    return SlotRow(job["id"], slot, state, starts, expires, verdict.reason or decision.reason, decision.covers_from,
                   decision.covers_until, decision.covers_count)  # fmt: skip


def replaced(row: SlotRow) -> SlotRow:
    """The row of a slot that a later slot of the same batch replaces before anybody could start it."""
    if row.state in ("skipped", "missed"):
        return row
    return replace(row, state="skipped", expires_at=None, reason="overlap: replaced by the next slot")


def missed(job: Job, decision: Decision) -> SlotRow:
    """The row of a slot, or a whole stretch of them, that will not run."""
    slot = decision.scheduled_at
    return SlotRow(job["id"], slot, "missed", slot, None, decision.reason, decision.covers_from,
                   decision.covers_until, decision.covers_count)  # fmt: skip
