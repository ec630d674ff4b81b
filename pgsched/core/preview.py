"""The rule: a preview is made by the functions that decide slots, so what it shows is what will happen.

Around a change of the zone's offset each slot says what the change does to it. Excluded dates, overlap and catch-up are
decided when a slot is due, and are not foreseen here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from datetime import timezone as fixed_offset
from itertools import islice, pairwise
from typing import Any

from pgsched.core import grammar, jitter, zones
from pgsched.core.describe import describe, duration
from pgsched.core.schedule import Schedule, parse
from pgsched.core.zones import Change
from pgsched.errors import ScheduleError

SECOND = timedelta(seconds=1)
NEAR = timedelta(days=7)
FOR_EVER = datetime.max.replace(tzinfo=UTC)
# Local times and a week on either side must lie in the calendar.
EARLIEST, LATEST = datetime(1, 1, 15, tzinfo=UTC), datetime(9999, 12, 15, tzinfo=UTC)
LISTED = 3


@dataclass(frozen=True, slots=True)
class Fire:
    """A slot: the instant, the local time it has, and what is to be said about it.

    `dst` is set within a week of a change of the zone's offset. `starts_at` differs from `at` only by a job's jitter.
    """

    at: datetime
    local: datetime
    dst: str | None
    remarks: tuple[str, ...]
    starts_at: datetime


@dataclass(frozen=True, slots=True)
class JobPreview:
    """A job's next slots, in words and one by one; `notes` says what else decides about them."""

    sentence: str
    timezone: str
    notes: tuple[str, ...]
    fires: tuple[Fire, ...]


def preview(schedule: Schedule, start: datetime, count: int) -> list[Fire]:
    """The first slots after an instant."""
    slots = list(islice(schedule.between(start, FOR_EVER), count))
    return [_fire(schedule, before, at) for before, at in pairwise([start, *slots])]


def _fire(schedule: Schedule, before: datetime, at: datetime) -> Fire:
    tz = zones.zone(schedule.timezone)
    local = at.astimezone(tz)
    middle = min(max(at, EARLIEST), LATEST)
    near = list(zones.changes(tz, middle - NEAR, middle + NEAR))
    remarks = [text for change in near for text in _remarks(schedule, change, before, at)]
    shown = local.replace(tzinfo=fixed_offset(local.utcoffset() or timedelta(0)), fold=0)
    return Fire(at, shown, "; ".join(map(_said, near)) or None, tuple(remarks), at)


def _said(change: Change) -> str:
    moved = change.after - change.before
    minutes = abs(moved) // timedelta(minutes=1)
    length = f"{minutes} min" if minutes % 60 else f"{minutes // 60} h"
    return f"clocks go {'forward' if moved > timedelta(0) else 'back'} {length} on {change.before:%Y-%m-%d %H:%M}"


def _remarks(schedule: Schedule, change: Change, before: datetime, at: datetime) -> list[str]:
    """What a change does to this very slot."""
    read = grammar.read(schedule.expression)
    fixed = isinstance(read, grammar.Cron) and not read.wildcard
    length = change.before - change.after
    if change.at - length <= at < change.at + length:
        which, shown = "first" if at < change.at else "second", at.astimezone(zones.zone(schedule.timezone))
        return [f"{which} of two: {shown:%H:%M} comes twice" + (", and only the first counts" if fixed else "")]
    if length < timedelta(0) and before < change.at <= at and isinstance(read, grammar.Cron):
        return _in_the_gap(schedule, change, "moved" if fixed and at == change.at else "left out")
    return []


def _in_the_gap(schedule: Schedule, change: Change, what: str) -> list[str]:
    """The wall times that the schedule names and the change skips."""
    # UTC has no gaps: the same expression names them all there.
    first, last = ((wall - SECOND).replace(tzinfo=UTC) for wall in (change.before, change.after))
    walls = list(islice(parse(schedule.expression).between(first, last), LISTED + 1))
    form = "%H:%M" if change.before.date() == change.after.date() else "%Y-%m-%d %H:%M"
    texts = [format(wall, form) for wall in walls[:LISTED]] + ["..."] * (len(walls) > LISTED)
    if len(texts) < 2:
        return [f"{what}: the wall time {texts[0]} does not exist"] if texts else []
    return [f"{what}: the wall times {', '.join(texts)} do not exist"]


def preview_job(job: Mapping[str, Any], count: int) -> JobPreview:
    """The next slots of a job that is a row of `jobs` (with the database's `now`)."""
    if job["schedule"] is None:
        return _one_off(job)
    try:
        schedule = parse(job["schedule"], job["timezone"], job["anchor_at"])
    except ScheduleError as error:
        return JobPreview(job["schedule"], job["timezone"], (f"in error: {error}; no slots until it is changed",), ())
    left = count if job["max_runs"] is None else min(count, max(job["max_runs"] - job["run_count"], 0))
    start = max(job["now"], job["decided_until"] or job["anchor_at"])
    fires = [
        replace(fire, starts_at=fire.at + jitter.offset(job["id"], fire.at, job["jitter"]))
        for fire in preview(schedule, start, left)
        if job["ends_at"] is None or fire.at <= job["ends_at"]
    ]
    notes = [*_standing(job), *_waiting(job, schedule), *_limits(job)]
    return JobPreview(describe(schedule), job["timezone"], tuple(notes), tuple(fires))


def _one_off(job: Mapping[str, Any]) -> JobPreview:
    at: datetime = job["run_at"]
    tz = zones.zone(job["timezone"])
    local = at.astimezone(tz)
    shown = local.replace(tzinfo=fixed_offset(local.utcoffset() or timedelta(0)), fold=0)
    fire = Fire(at, shown, None, (), at + jitter.offset(job["id"], at, job["jitter"]))
    pending = job["next_run_at"] is not None
    notes = [*_standing(job), *([] if pending else ["its one slot is decided"]), *_limits(job)]
    return JobPreview(f"Once, at {at:%Y-%m-%d %H:%M:%S} UTC", job["timezone"], tuple(notes), (fire,) * pending)


def _standing(job: Mapping[str, Any]) -> list[str]:
    """What keeps the job from having slots at all."""
    notes = []
    if job["paused"]:
        why = f": {job['paused_reason']}" if job["paused_reason"] else ""
        notes.append(f"paused by {job['paused_by']} since {_utc(job['paused_at'])}{why}; no slots until it is resumed")
    if job["error"] is not None:
        notes.append(f"in error: {job['error']}; no slots until it is changed")
    return notes


def _waiting(job: Mapping[str, Any], schedule: Schedule) -> list[str]:
    """Slots that exist already, or that cannot be known yet."""
    if schedule.fixed_delay is not None:
        return ["its slots depend on when runs end, so none can be foreseen"]
    decided = job["decided_until"] or job["anchor_at"]
    due = None if job["paused"] or job["next_run_at"] is None else schedule.after(decided)
    if due is None or due > job["now"]:
        return []
    return [f"slots since {_utc(due)} are due and not decided yet: catch_up is {job['catch_up']}"]


def _limits(job: Mapping[str, Any]) -> list[str]:
    """The columns that begin, end, count and spread its slots."""
    notes = []
    if job["starts_at"] is not None and job["starts_at"] > job["now"]:
        notes.append(f"starts at {_utc(job['starts_at'])}")
    if job["ends_at"] is not None:
        notes.append(f"{'ended' if job['ends_at'] <= job['now'] else 'ends'} at {_utc(job['ends_at'])}")
    if job["max_runs"] is not None:
        notes.append(f"{max(job['max_runs'] - job['run_count'], 0)} of {job['max_runs']} runs left")
    if job["jitter"]:
        notes.append(f"each start is moved by up to {duration(job['jitter'])}")
    return notes


def _utc(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
