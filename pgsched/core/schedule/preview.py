"""Preview the next slots of a schedule or job, with remarks for each slot.

Invariant: the functions that decide slots also make the preview, so the preview shows the slots that will be decided.

Remarks say what a change of the zone's offset does to a slot, and whether the slot falls on an excluded date. What
depends on running runs (overlap) or on a late leader (catch-up) is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from datetime import timezone as fixed_offset
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.core.planning import jitter
from pgsched.core.planning.job_schedule import excluded_times, first_allowed, job_calendar, job_schedule
from pgsched.core.planning.plan import SHADOW, is_shadow, undecided_after
from pgsched.core.schedule import grammar, zones
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.core.schedule.describe import describe
from pgsched.core.schedule.shifted import Shifted
from pgsched.core.schedule.union import Union
from pgsched.core.schedule.zones import Change
from pgsched.core.units import format_duration
from pgsched.errors import ScheduleError

SECOND = timedelta(seconds=1)
NEAR = timedelta(days=7)
FOR_EVER = datetime.max.replace(tzinfo=UTC)
# Local times, and a week before and after them, must lie in the calendar.
EARLIEST, LATEST = datetime(1, 1, 15, tzinfo=UTC), datetime(9999, 12, 15, tzinfo=UTC)
LISTED = 3
INSTANT = timedelta(microseconds=1)
WORDS = {
    "skip": "slots at its times are skipped",
    "next_business_day": "slots at its times move to the next day on which that time is allowed",
    "previous": "slots at its times move to the day before on which that time is allowed",
}
GAPS, LOOK = 500, timedelta(days=3660)  # limits of the search for the shortest time between two slots: slots, time


@dataclass(frozen=True, slots=True)
class PreviewSlot:
    """One slot of a preview: the instant, its local time, and remarks.

    `dst`: the change of the zone's offset, if there is one within a week of the slot.
    `starts_at`: the slot moved by the job's jitter; None where the slot will be skipped.
    `excluded`: why the slot will be skipped: its excluded date or time, or "shadow".
    `nominal`: where the schedule has the slot, if a calendar shifts it.
    """

    at: datetime
    local: datetime
    dst: str | None
    remarks: tuple[str, ...]
    starts_at: datetime | None
    excluded: str | None = None
    nominal: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobPreview:
    """A job's next slots: a sentence, and one by one. `notes`: other facts that decide about them."""

    sentence: str
    timezone: str
    notes: tuple[str, ...]
    fires: tuple[PreviewSlot, ...]


def next_slots(schedule: Schedule, start: datetime, count: int) -> list[PreviewSlot]:
    """Return the first `count` slots after an instant."""
    slots = list(islice(schedule.between(start, FOR_EVER), count))
    return [_fire(schedule, before, at) for before, at in pairwise([start, *slots])]


def _fire(schedule: Schedule, before: datetime, at: datetime) -> PreviewSlot:
    tz = zones.zone(schedule.timezone)
    local = at.astimezone(tz)
    middle = min(max(at, EARLIEST), LATEST)
    near = [change for change in _changes_around(tz, middle.date()) if middle - NEAR < change.at <= middle + NEAR]
    nominal = schedule.nominal_of(at) if isinstance(schedule, Shifted) else None
    own = schedule.nominal if isinstance(schedule, Shifted) else schedule
    if own is not schedule:  # what a change of the clocks does to a slot, its own schedule says
        before = own.before(at) or before
    found = (text for change in near for text in _remarks(own, change, before, at))
    remarks = list(found) if nominal is None else [f"moved from {nominal.astimezone(tz):%a %Y-%m-%d %H:%M}"]
    shown = local.replace(tzinfo=fixed_offset(local.utcoffset() or timedelta(0)), fold=0)
    return PreviewSlot(
        at, shown, "; ".join(map(_describe_change, near)) or None, tuple(remarks), at, nominal=nominal
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _changes_around(tz: ZoneInfo, day: date) -> tuple[Change, ...]:
    """Return the offset changes within a week of any instant of a day in UTC."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return tuple(zones.changes(tz, begin - NEAR, begin + NEAR + timedelta(days=1)))


def _describe_change(change: Change) -> str:
    moved = change.after - change.before
    minutes = abs(moved) // timedelta(minutes=1)
    length = f"{minutes} min" if minutes % 60 else f"{minutes // 60} h"
    return f"clocks go {'forward' if moved > timedelta(0) else 'back'} {length} on {change.before:%Y-%m-%d %H:%M}"


def _remarks(schedule: Schedule, change: Change, before: datetime, at: datetime) -> list[str]:
    """Describe what an offset change does to this slot. Each of several expressions has its own rule."""
    if isinstance(schedule, Union):
        skips = before < change.at <= at and change.after > change.before
        members = schedule.members if skips else schedule.members_at(at)
        return list(dict.fromkeys(text for member in members for text in _remarks(member, change, before, at)))
    read = grammar.parse_expression(schedule.expression) if schedule.expression else None  # none: run_at
    fixed = isinstance(read, grammar.Cron) and not read.wildcard
    length = change.before - change.after
    if change.at - length <= at < change.at + length:
        which, shown = "first" if at < change.at else "second", at.astimezone(zones.zone(schedule.timezone))
        return [f"{which} of two: {shown:%H:%M} comes twice" + (", and only the first counts" if fixed else "")]
    if length < timedelta(0) and before < change.at <= at and isinstance(read, grammar.Cron):
        return _in_the_gap(schedule, change, "moved" if fixed and at == change.at else "left out")
    return []


def _in_the_gap(schedule: Schedule, change: Change, what: str) -> list[str]:
    """Describe the wall clocks that the schedule names and the change skips."""
    # UTC has no gaps, so the same expression in UTC gives all these wall clocks.
    first, last = ((wall - SECOND).replace(tzinfo=UTC) for wall in (change.before, change.after))
    walls = list(islice(parse(schedule.expression).between(first, last), LISTED + 1))
    form = "%H:%M" if change.before.date() == change.after.date() else "%Y-%m-%d %H:%M"
    texts = [format(wall, form) for wall in walls[:LISTED]] + ["..."] * (len(walls) > LISTED)
    if len(texts) < 2:
        return [f"{what}: the wall time {texts[0]} does not exist"] if texts else []
    return [f"{what}: the wall times {', '.join(texts)} do not exist"]


def preview_job(job: Mapping[str, Any], count: int) -> JobPreview:
    """Return the next slots of a job (a row of `jobs` with the database's `now`)."""
    if job["schedule"] is None:
        return _one_off(job)
    try:
        schedule = job_schedule(job)
    except ScheduleError as error:
        return JobPreview(job["schedule"], job["timezone"], (f"in error: {error}; no slots until it is changed",), ())
    notes = [*_standing(job), *_calendar(job), *_dates(job), *_waiting(job, schedule), *_limits(job)]
    sentence = describe(job["schedule"], job["timezone"])
    return JobPreview(sentence, job["timezone"], tuple(notes), tuple(_fires(job, schedule, count)))


def upcoming(job: Mapping[str, Any], count: int) -> list[PreviewSlot]:
    """Return the next slots of a job (as `preview_job`), without notes; none for a job that cannot be planned."""
    if job["schedule"] is None:
        return list(_one_off(job).fires)
    try:
        schedule = job_schedule(job)
    except ScheduleError:
        return []
    return list(_fires(job, schedule, count))


def _fires(job: Mapping[str, Any], schedule: Schedule, count: int) -> Iterator[PreviewSlot]:
    """Yield slots up to the job's end; skipped slots do not count against `max_runs`."""
    left = None if job["max_runs"] is None else max(job["max_runs"] - job["run_count"], 0)
    for fire in next_slots(schedule, max(job["now"], undecided_after(job)), count):
        if left == 0 or (job["ends_at"] is not None and fire.at > job["ends_at"]):
            return
        slot = _apply_job(job, fire)
        left = left - 1 if left is not None and slot.excluded is None else left  # a slot that is skipped is no run
        yield slot


def _apply_job(job: Mapping[str, Any], fire: PreviewSlot) -> PreviewSlot:
    """Return the slot after applying the job's excluded times and jitter."""
    if excluded := job_calendar(job).excluded(fire.at):
        return replace(fire, starts_at=None, excluded=excluded)
    if is_shadow(job):
        return replace(fire, starts_at=None, excluded=SHADOW)
    return replace(fire, starts_at=fire.at + jitter.offset(job["id"], fire.at, job["jitter"]))


def next_allowed(job: Mapping[str, Any]) -> datetime | None:
    """Return the first slot from `next_run_at` on at no excluded time; None where there is none, or none soon.

    Until the leader has planned a new job, `next_run_at` is the instant of its creation and no slot.
    """
    slot: datetime | None = job["next_run_at"]
    dates = job_calendar(job)
    due = slot is not None and "now" in job and slot <= job["now"] and job["schedule"] is not None
    if slot is None or (dates.excluded(slot) is None and not due):
        return slot
    if job["schedule"] is None:
        return None
    try:
        schedule = job_schedule(job)
    except ScheduleError:
        return slot
    if schedule.fixed_delay is not None:  # its planning has moved the slot past excluded times already
        return slot
    slot = first_allowed(schedule, dates, schedule.after(slot - INSTANT) if due else slot)
    return None if slot is None or (job["ends_at"] is not None and slot > job["ends_at"]) else slot


def jitter_warning(job: Mapping[str, Any]) -> str | None:
    """Return a warning if jitter may move a start after the next slot, which then ends the unstarted run."""
    if job["overlap"] not in ("replace", "terminate") or not job["jitter"] or job["schedule"] is None:
        return None
    try:
        schedule = job_schedule(job)
    except ScheduleError:
        return None
    slots = islice(schedule.between(job["now"], job["now"] + LOOK), GAPS)
    if not any(later - slot < job["jitter"] for slot, later in pairwise(slots)):
        return None
    return (
        f"jitter is longer than the time between some slots: under overlap {job['overlap']} a slot that has not started"
        " is ended by the next one"
    )


def _one_off(job: Mapping[str, Any]) -> JobPreview:
    at, schedule = job["run_at"], job_schedule(job)
    target = schedule.target(at) if isinstance(schedule, Shifted) else None
    tz, slot = zones.zone(job["timezone"]), target or at
    local = slot.astimezone(tz)
    shown = local.replace(tzinfo=fixed_offset(local.utcoffset() or timedelta(0)), fold=0)
    nominal = None if slot == at else at
    moved = () if nominal is None else (f"moved from {at.astimezone(tz):%a %Y-%m-%d %H:%M}",)
    fire = _apply_job(job, PreviewSlot(slot, shown, None, moved, slot, nominal=nominal))
    pending = job["next_run_at"] is not None
    notes = [*_standing(job), *_calendar(job), *_dates(job), *([] if pending else ["its one slot is decided"]),
             *_limits(job)]  # fmt: skip
    return JobPreview(f"Once, at {at:%Y-%m-%d %H:%M:%S} UTC", job["timezone"], tuple(notes), (fire,) * pending)


def _calendar(job: Mapping[str, Any]) -> list[str]:
    """Return a note on the job's calendar, and on what becomes of slots at excluded times."""
    name, on_excluded = job.get("calendar"), job.get("on_excluded") or "skip"
    if name is None and on_excluded == "skip":
        return []
    whose = f"calendar {name}" if name is not None else "its excluded dates"
    return [f"{whose}: {WORDS[on_excluded]}"]


def _standing(job: Mapping[str, Any]) -> list[str]:
    """Return notes on what keeps the job from having any slots."""
    notes = []
    if job["paused"]:
        why = f": {job['paused_reason']}" if job["paused_reason"] else ""
        notes.append(f"paused by {job['paused_by']} since {_utc(job['paused_at'])}{why}; no slots until it is resumed")
    if job["error"] is not None:
        notes.append(f"in error: {job['error']}; no slots until it is changed")
    if is_shadow(job):
        notes.append("in mode shadow: its slots are recorded as skipped, and nothing runs")
    return notes


def _dates(job: Mapping[str, Any]) -> list[str]:
    """Return a note if the next slot will be skipped for an excluded date or time."""
    if not excluded_times(job):
        return []
    following = next_allowed(job)
    what = "excluded date" if job.get("calendar") is None else "excluded date or time"
    if following == job["next_run_at"]:
        return []
    if following is None:
        return [f"every slot to come is on an {what}"]
    return [f"the next slot on no {what} is {_utc(following)}"]


def _waiting(job: Mapping[str, Any], schedule: Schedule) -> list[str]:
    """Return a note on slots that are due already, or that cannot be known yet."""
    if schedule.fixed_delay is not None:
        return ["its slots depend on when runs end, so none can be foreseen"]
    due = None if job["paused"] or job["next_run_at"] is None else schedule.after(undecided_after(job))
    if due is None or due > job["now"]:
        return []
    return [f"slots since {_utc(due)} are due and not decided yet: catch_up is {job['catch_up']}"]


def _limits(job: Mapping[str, Any]) -> list[str]:
    """Return notes on when slots start and end, how many are left, and jitter."""
    notes = []
    if job["starts_at"] is not None and job["starts_at"] > job["now"]:
        notes.append(f"starts at {_utc(job['starts_at'])}")
    if job["ends_at"] is not None:
        notes.append(f"{'ended' if job['ends_at'] <= job['now'] else 'ends'} at {_utc(job['ends_at'])}")
    if job["max_runs"] is not None:
        notes.append(f"{max(job['max_runs'] - job['run_count'], 0)} of {job['max_runs']} runs left")
    if job["jitter"]:
        notes.append(f"each start is moved by up to {format_duration(job['jitter'])}")
    return [*notes, *filter(None, [jitter_warning(job)])]


def _utc(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
