"""Decide one job's due slots: turn them into rows, and compute the job's new high-water mark and next slot.

Invariant: the result depends only on the job's row, its unfinished runs and the instant. Every slot gets one row: a
run, a waiting run, or a row that says why the slot does not run. Only decisions move the mark.

The job's row is what `tick_terms` in sql/ticks.sql returns, with these additions:

- `now`: the instant of the decision
- `decided_until`: the undecided slots lie after this: the mark, or the instant before the job's start
- `open`, `held`, `newest`, `in_turn`, `retried`: its unfinished runs

Of a job whose slots a calendar shifts, the result also says which nominal slots are decided (`Advance.shifts`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pgsched.core.planning import overlap
from pgsched.core.planning.catchup import BATCH, TOO_LATE, CatchUp, Decision, decide, decide_one
from pgsched.core.planning.intervals import CoveredSlots, has_row, without_covered
from pgsched.core.planning.jitter import offset
from pgsched.core.planning.job_schedule import excluded_times, is_shifted, job_calendar, job_schedule
from pgsched.core.planning.overlap import UnfinishedRuns, Verdict
from pgsched.core.planning.overtaken import overtaken_slots
from pgsched.core.planning.slot_intervals import add_intervals, interval_of, previous_slot, slot_before
from pgsched.core.schedule.base import Schedule
from pgsched.core.schedule.shift_progress import decided_at
from pgsched.core.schedule.shifted import Shifted

DELAY_RECHECK = timedelta(seconds=1)
PUNCTUAL = timedelta(seconds=1)  # a slot decided within this time is on time, even if `misfire_after` is shorter
NEVER_RUN = ("skipped", "missed")
SHADOW = "shadow"  # the reason of rows of jobs in mode shadow begins with this
Job = dict[str, Any]
INSTANT = timedelta(microseconds=1)
# The decisions, the new high-water mark (None: unchanged, as there are no decisions), and the next slot.
Plan = tuple[list[Decision], datetime | None, datetime | None]


class SlotRow(NamedTuple):
    """One row that a tick inserts (the columns of `tick_insert`), for one job or for many.

    `held_until`: until when a slot waits that overlap would otherwise skip.
    `extend`: the mark at which an excluded stretch may continue. If a row for its beginning exists, that row grows
        instead.
    """

    slot: datetime
    state: str
    available_at: datetime
    expires_at: datetime | None = None
    reason: str | None = None
    covers_from: datetime | None = None
    covers_until: datetime | None = None
    covers_count: int | None = None
    held_until: datetime | None = None
    extend: datetime | None = None
    interval_start: datetime | None = None
    nominal_at: datetime | None = None


class Advance(NamedTuple):
    """How a tick leaves a job (the columns of `tick_advance`).

    `run_count`: how many new rows are runs.
    `shift`: which nominal slots are decided, as text; None: unchanged; empty: no calendar shifts slots any more.
    """

    decided_until: datetime | None
    next_run_at: datetime | None
    run_count: int = 0
    error: str | None = None
    shift: str | None = None


class Decided(NamedTuple):
    """One job's part of a batch. `ends_others`: end its unfinished runs first."""

    rows: list[SlotRow]
    advance: Advance
    ends_others: bool


def decide_job(job: Job, planned: Plan | None = None, known: Collection[CoveredSlots] = ()) -> Decided:
    """Turn one job's due slots into rows, and return the job's new mark and next slot.

    `planned`: the result of `plan`, if the caller has it already.
    `known`: rows that exist for undecided slots, because the job's mark was lost.
    """
    decisions, decided_until, next_at = planned or plan(job)
    if known:
        decisions = without_known_rows(job, decisions, known)
    unfinished = UnfinishedRuns(job["open"], job["held"], job["newest"], job["in_turn"], job.get("retried", 0))
    rows: list[SlotRow] = []
    reached: datetime | None = None
    runs = replaces_from = 0
    ends_others = False
    for decision in decisions:
        if used_up(job, runs):
            break
        reached = decision.covers_until or decision.scheduled_at
        if is_shadow(job):
            rows.append(row_in_shadow(job, decision))
            continue
        if decision.verdict != "run":
            rows.append(row_not_run(job, decision))
            continue
        verdict = verdict_on(job, decision, unfinished)
        if verdict.ends_others:
            ends_others = True
            rows[replaces_from:] = [row_replaced(job, row) for row in rows[replaces_from:]]
            runs, replaces_from, unfinished = 0, len(rows), UnfinishedRuns(0, 0)
        rows.append(row_to_run(job, decision, verdict))
        runs += verdict.state != "skipped"
        unfinished = unfinished_after(unfinished, verdict)
    if used_up(job, runs):  # slots after the last run do not exist, and are not decided
        decided_until, next_at = reached, None
    return Decided(rows, Advance(decided_until, next_at, runs, shift=shift_after(job, decided_until)), ends_others)


def without_known_rows(job: Job, decisions: list[Decision], known: Collection[CoveredSlots]) -> list[Decision]:
    """Return the decisions for slots that have no row."""
    if job["schedule"] is None:
        return [decision for decision in decisions if not has_row(decision.scheduled_at, known)]
    schedule = job_schedule(job)
    parts = [part for decision in decisions for part in without_covered(schedule, decision, known)]
    return [part if part in decisions else interval_of(schedule, part) for part in parts]


def shift_after(job: Job, mark: datetime | None) -> str | None:
    """Return which nominal slots are decided once all slots up to `mark` are (None: up to the present mark)."""
    schedule = job_schedule(job) if is_shifted(job) and job["schedule"] is not None else None
    if not isinstance(schedule, Shifted):
        return None
    begins_later = job["starts_at"] is not None and job["starts_at"] > job["now"]
    # slots that an edit or a resume has passed over move the mark without a decision
    is_known = schedule.decided is not None and schedule.decided.at >= job["decided_until"]
    if mark is None and (is_known or begins_later):
        return None
    decided = decided_at(schedule, max(mark or job["decided_until"], job["decided_until"]))
    return decided.to_text() if schedule.days.step or decided.ahead or decided.behind else ""


def used_up(job: Job, runs: int) -> bool:
    """Check whether the job has had its `max_runs` with `runs` more; later slots do not exist then."""
    return job["max_runs"] is not None and job["run_count"] + runs >= job["max_runs"]


def verdict_on(job: Job, decision: Decision, unfinished: UnfinishedRuns) -> Verdict:
    """Return the overlap policy's verdict; a slot waits for earlier runs only until `retry_within` is over."""
    until = held_until(job, decision.scheduled_at)
    retries = until is not None and until > job["now"]
    most = job["max_catch_up"] if decision.in_turn else None
    return overlap.decide(job["overlap"], unfinished, job["max_buffer"], retries=retries, most_in_turn=most)


def held_until(job: Job, slot: datetime) -> datetime | None:
    """Return until when a slot may wait that overlap would skip; None without `retry_within`.

    `retry_within` counts from the slot's start, jitter included.
    """
    return start_of(job, slot) + job["retry_within"] if job["retry_within"] else None


def start_of(job: Job, slot: datetime) -> datetime:
    """Return when a slot's run may start: the slot, moved by jitter."""
    return slot + offset(job["id"], slot, job["jitter"]) if job["jitter"] else slot


def unfinished_after(unfinished: UnfinishedRuns, verdict: Verdict) -> UnfinishedRuns:
    """Return the job's unfinished runs after a slot with this verdict has its row."""
    born_open = verdict.state != "skipped"
    waits, in_turn = verdict.state == "waiting", unfinished.in_turn + verdict.in_turn
    return UnfinishedRuns(
        unfinished.open + born_open,
        unfinished.waiting + waits - verdict.in_turn,
        unfinished.newest_id,
        in_turn,
        unfinished.retried,
    )


def undecided_after(job: Mapping[str, Any]) -> datetime:
    """Return the instant after which the undecided slots of a scheduled job lie (`job`: a row of `jobs`)."""
    mark: datetime = job["decided_until"] or job["anchor_at"]
    return mark if job["starts_at"] is None else max(mark, job["starts_at"] - INSTANT)


def plan(job: Job) -> Plan:
    """Return the decisions for all due slots, the new high-water mark and the next slot."""
    if job["schedule"] is None:
        return one_off(job)
    schedule = job_schedule(job)
    if schedule.fixed_delay is not None:
        return fixed_delay(job, schedule.fixed_delay)
    begun = job["decided_until"] or job["anchor_at"]
    planned = plan_on_time(job, schedule, begun)
    if planned is None:
        found, reached, next_at = decide(
            schedule, begun, job["now"], catch_up_policy(job), job["ends_at"], job_calendar(job)
        )
        planned = add_intervals(schedule, begun, found), reached, next_at
    decisions, reached, next_at = planned
    if isinstance(schedule, Shifted):
        decisions = [*overtaken_slots(job, schedule), *decisions]
    return decisions, reached if decisions else None, next_at


def plan_on_time(
    job: Job, schedule: Schedule, begun: datetime
) -> tuple[list[Decision], datetime, datetime | None] | None:
    """Return the plan for the most common case, in which no slot is late and no time excluded; None for other cases."""
    now, ends_at = job["now"], job["ends_at"]
    end = now if ends_at is None else min(now, ends_at)
    slot = schedule.after(begun)
    late = now - slot if slot is not None and slot <= end else None
    if excluded_times(job) or (late is not None and late > min(misfire_after(job), job["start_deadline"] or late)):
        return None
    decisions: list[Decision] = []
    before = None if late is None or slot is None else previous_slot(schedule, begun, slot)
    while slot is not None and slot <= end and len(decisions) < BATCH:
        decisions.append(Decision(slot, "run", None, None, None, None, interval_start=before))
        begun = before = slot
        slot = schedule.after(slot)
    return decisions, begun, None if slot is not None and ends_at is not None and slot > ends_at else slot


def catch_up_policy(job: Job) -> CatchUp:
    """Return the job's catch-up policy as a value."""
    return CatchUp(
        job["catch_up"], misfire_after(job), job["catch_up_window"], job["max_catch_up"], job["start_deadline"]
    )


def misfire_after(job: Job) -> timedelta:
    """Return how late a slot may be decided and still be on time.

    The result is never less than `PUNCTUAL`, because deciding takes time. With less, a job would misfire each time
    although it is decided as soon as it is due.
    """
    given: timedelta = job["misfire_after"]
    return max(given, PUNCTUAL)


def one_off(job: Job) -> Plan:
    """Plan a job with `run_at`: one slot, decided once. The mark covers `run_at`, wherever a calendar shifts it."""
    nominal, now, mark = job["run_at"], job["now"], job["decided_until"]
    if mark is not None and nominal <= mark:
        return [], None, None
    schedule = job_schedule(job)
    slot = (schedule.target(nominal) if isinstance(schedule, Shifted) else None) or nominal
    if (job["starts_at"] is not None and slot < job["starts_at"]) or (
        job["ends_at"] is not None and slot > job["ends_at"]
    ):
        slot = nominal  # where it is excluded, and skipped
    if slot > now:
        return [], None, slot
    decision = decide_one(slot, now, catch_up_policy(job), job_calendar(job))
    return [decision._replace(nominal_at=None if slot == nominal else nominal)], max(slot, nominal), None


def fixed_delay(job: Job, delay: timedelta) -> Plan:
    """Plan an `@after` job: one slot, a delay after the last run ended or the job began.

    While a run is open, the job is planned again every DELAY_RECHECK. Excluded dates postpone the slot, because there
    are no other slots that they could skip.
    """
    now, mark = job["now"], job["decided_until"] or job["anchor_at"]
    if job["open"]:
        return [], None, now + DELAY_RECHECK
    # Never before the mark: retention deletes the last run, and the clock may have stepped back.
    slot = max(job["last_finished_at"] or mark, mark, job["anchor_at"]) + delay
    slot = job_calendar(job).next_allowed(slot)
    if job["ends_at"] is not None and slot > job["ends_at"]:
        return [], None, None
    if slot > now:
        return [], None, slot
    late = job["start_deadline"] is not None and now - slot > job["start_deadline"]
    decision = Decision(slot, "missed" if late else "run", TOO_LATE if late else None, None, None, None)
    return [decision], max(slot, mark), now + DELAY_RECHECK


def is_shadow(job: Mapping[str, Any]) -> bool:
    """Check whether slots of the job are only recorded, and nothing runs."""
    return job.get("mode") == "shadow"


def row_in_shadow(job: Job, decision: Decision) -> SlotRow:
    """Return the row of a slot of a job in mode shadow, which ends no other run and waits for none.

    It says what the catch-up policy decided; what overlap would decide depends on runs that there are not.
    """
    if decision.verdict == "skipped":
        return row_not_run(job, decision)
    slot = decision.scheduled_at
    reason = SHADOW if decision.verdict == "run" else f"{SHADOW}: would be missed: {decision.reason}"
    row = SlotRow(slot, "skipped", start_of(job, slot), None, reason, decision.covers_from, decision.covers_until,
                  decision.covers_count, None, None, decision.interval_start, decision.nominal_at)  # fmt: skip
    return with_own_interval(job, row)


def row_to_run(job: Job, decision: Decision, verdict: Verdict) -> SlotRow:
    """Return the row of a slot that is to run, or that overlap skips."""
    slot, now = decision.scheduled_at, job["now"]
    starts = start_of(job, slot)
    state = "scheduled" if verdict.state == "queued" and starts > now else verdict.state
    expires = slot + job["start_deadline"] if job["start_deadline"] is not None and state != "skipped" else None
    in_turn_until = held_until(job, slot) if verdict.retries else None
    reason = verdict.reason if verdict.in_turn else overlap.row_reason(verdict.reason, decision.reason)
    row = SlotRow(
        slot, state, starts, expires, reason, decision.covers_from, decision.covers_until, decision.covers_count,
        in_turn_until, interval_start=decision.interval_start, nominal_at=decision.nominal_at,
    )  # fmt: skip
    return with_own_interval(job, row) if state == "skipped" else row


def row_replaced(job: Job, row: SlotRow) -> SlotRow:
    """Return the row of a slot that a later slot of the same batch replaces before any worker could start it."""
    if row.state in NEVER_RUN:
        return row
    late = row.reason if row.covers_until is not None else None
    reason = overlap.row_reason(overlap.REPLACED, late)
    return with_own_interval(job, row._replace(state="skipped", expires_at=None, reason=reason))


def with_own_interval(job: Job, row: SlotRow) -> SlotRow:
    """Return a row that does not run with the interval of its own slot: a person revives it for that slot alone."""
    if row.covers_from is None or row.covers_from == row.slot:
        return row
    return row._replace(interval_start=slot_before(job_schedule(job), row.slot))


def row_not_run(job: Job, decision: Decision) -> SlotRow:
    """Return the row of a slot, or of a stretch of slots, that will not run.

    An excluded stretch may continue a stretch of an earlier batch. Then the row of that stretch grows, so an exclusion
    of months is one row.
    """
    slot = decision.scheduled_at
    goes_on = decision.verdict == "skipped" and decision.covers_from is not None
    return SlotRow(slot, decision.verdict, slot, None, decision.reason, decision.covers_from,
                   decision.covers_until, decision.covers_count, None,
                   job["decided_until"] if goes_on else None, decision.interval_start, decision.nominal_at)  # fmt: skip
