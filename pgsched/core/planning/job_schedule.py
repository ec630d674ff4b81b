"""The schedule of a job as its slots are decided: what the job excludes, and what becomes of slots there, included.

Invariant: all who compute slots of a job (the tick, previews, backfills, explanations) take the schedule from here.

`job` is a row with `schedule`, `timezone`, `anchor_at`, `run_at` and these, which may be missing:

- `excluded`: its own excluded dates, and `calendar_times`: those of its calendar, as `calendar` takes them
- `on_excluded`: one of STEPS
- `shifts`: which nominal slots are decided, as `DecidedTimes` writes it
- `known_schedule`: the result of `job_schedule`, where the caller has it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.schedule import zones
from pgsched.core.schedule.base import Once
from pgsched.core.schedule.calendar import Calendar, calendar, read_rows
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.core.schedule.decided_times import parse_decided_times
from pgsched.core.schedule.shifted import Shifted
from pgsched.core.schedule.shifting_days import LOOK_AROUND, STEPS, ShiftingDays

MOST_EXCLUDED = 1000
INSTANT = timedelta(microseconds=1)
STAYS = f"; no time within {LOOK_AROUND} days is allowed"


def job_schedule(job: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a job's undecided slots. Equal texts are parsed once. Raises ScheduleError."""
    known: Schedule | None = job.get("known_schedule")
    if known is not None:
        return known
    if not is_shifted(job):
        return nominal_schedule(job)
    shifted = whole_schedule(job)
    if not isinstance(shifted, Shifted):
        return shifted
    return replace(shifted, decided=parse_decided_times(job.get("shifts")))


def whole_schedule(job: Mapping[str, Any]) -> Schedule:
    """Return the schedule of all slots of a job, the decided ones included. Raises ScheduleError."""
    nominal = nominal_schedule(job)
    if not is_shifted(job) or nominal.fixed_delay is not None:
        return nominal
    step = STEPS[job.get("on_excluded") or "skip"]
    days = ShiftingDays(calendar(excluded_times(job), job["timezone"]), step, zones.zone(job["timezone"]))
    return Shifted(nominal.expression, nominal.timezone, nominal, days)


def nominal_schedule(job: Mapping[str, Any]) -> Schedule:
    """Return the schedule that a person wrote; of a job without one, its one slot. Raises ScheduleError."""
    if job["schedule"] is None:
        return Once("", job["timezone"], job["run_at"])
    return parse(job["schedule"], job["timezone"], job["anchor_at"])


def is_shifted(job: Mapping[str, Any]) -> bool:
    """Check whether a calendar may have shifted slots of the job, or may shift some."""
    return job.get("on_excluded") not in (None, "skip") or job.get("shifts") is not None


def job_calendar(job: Mapping[str, Any]) -> Calendar:
    """Return the excluded times of a job, in its time zone."""
    ending = "" if job.get("on_excluded") in (None, "skip") else STAYS
    return calendar(excluded_times(job), job["timezone"], ending)


def first_allowed(schedule: Schedule, dates: Calendar, slot: datetime | None) -> datetime | None:
    """Return the first slot, this one or later, at no excluded time; None where there is none, or none soon.

    At most MOST_EXCLUDED excluded stretches are passed.
    """
    for _ in range(MOST_EXCLUDED):
        if slot is None or dates.excluded(slot) is None:
            return slot
        slot = schedule.after(dates.next_allowed(slot) - INSTANT)
    return None


def excluded_times(job: Mapping[str, Any]) -> Sequence[Any]:
    """Return the rows of the job's own excluded dates and of its calendar."""
    own, shared = job.get("excluded") or (), job.get("calendar_times") or ()
    return [*own, *shared] if own and shared else own or shared


def with_read_times(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job whose excluded times are read once: all who ask for its calendar then find it at once."""
    return {**job, "excluded": None, "calendar_times": read_rows(excluded_times(job))}
