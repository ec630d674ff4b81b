"""The slots of jobs before and after a change, and the changes of the clocks that move them.

Invariant: the functions that make a job's preview make these slots, so a plan shows what will be decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from pgsched.core.jobs_file.difference import Change
from pgsched.core.jobs_file.model.entries import Stored
from pgsched.core.schedule import grammar, zones
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.core.schedule.preview import PreviewSlot, next_slots, upcoming
from pgsched.errors import ScheduleError

SLOTS = 5
LOOK = timedelta(days=370)  # changes of the clocks are looked for so far ahead
# Columns whose change moves slots, and of them those that begin the sequence anew.
MOVING = {"schedule", "timezone", "run_at", "starts_at", "ends_at", "max_runs", "jitter", "excluded_dates", "calendar",
          "on_excluded"}  # fmt: skip
ANEW = {"schedule", "timezone", "run_at", "starts_at"}
NEW: Mapping[str, Any] = {"id": 0, "run_count": 0, "error": None, "next_run_at": None, "decided_until": None}
# A schedule with more slots in the day around a change of the clocks goes on evenly: nobody notices the change.
MOST_A_DAY = 30
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Slots:
    """The next slots of one job: before the change (None: it is new), after it, and whether they differ."""

    old: tuple[PreviewSlot, ...] | None
    new: tuple[PreviewSlot, ...]

    @property
    def differ(self) -> bool:
        """Whether the change moves a slot."""
        return self.old is not None and [one.at for one in self.old] != [one.at for one in self.new]


@dataclass(frozen=True, slots=True)
class ClockChange:
    """What a change of the clocks does to a slot.

    `day`: the date of the change, in the job's zone. `at`: the slot. `remark`: what happens.
    """

    day: str
    at: datetime
    remark: str


def preview_row(values: Mapping[str, Any], facts: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return a job as `core.schedule.preview` takes it.

    `facts`: what the database keeps about the job: id, anchor_at, decided_until, next_run_at, run_count, error.
    """
    anchor = facts.get("anchor_at") or values["starts_at"] or now
    row = {**NEW, **values, **facts, "now": now, "anchor_at": anchor}
    row["jitter"] = values["jitter"].delta
    row["excluded"] = [tuple(one) for one in values["excluded_dates"]] or None
    if row["schedule"] is None:
        row["run_at"] = values["run_at"] or facts.get("run_at") or now
        if "next_run_at" not in facts:
            row["next_run_at"] = row["run_at"]
    return row


def slots_of(change: Change, now: datetime) -> Slots | None:
    """Return the next slots of a job that is new or whose slots a change may move; None for any other change."""
    entry, stored = change.entry, change.stored
    if entry is None or entry.what != "job":
        return None
    if stored is None:
        return Slots(None, tuple(upcoming(preview_row(entry.values, {}, now), SLOTS)))
    columns = {one.column for one in change.columns}
    if not columns & MOVING:
        return None
    facts = dict(stored.row)
    if columns & ANEW:
        facts |= {"anchor_at": None, "decided_until": now, "next_run_at": now, "error": None}
    new = preview_row(_merged(change, stored), facts, now)
    return Slots(tuple(upcoming(preview_row(stored.values, stored.row, now), SLOTS)), tuple(upcoming(new, SLOTS)))


def _merged(change: Change, stored: Stored) -> dict[str, Any]:
    """Return the values of a job after its change."""
    return {**stored.values, **{one.column: one.new for one in change.columns}}


def clock_changes(change: Change, now: datetime) -> tuple[ClockChange, ...]:
    """Return what the changes of the clocks in the next year do to the slots of a job that is new or moved."""
    entry = change.entry
    if entry is None or entry.what != "job" or entry.values["schedule"] is None:
        return ()
    if change.stored is not None and not {one.column for one in change.columns} & {"schedule", "timezone"}:
        return ()
    return _clock_changes(entry.values["schedule"], entry.values["timezone"], now)


@lru_cache(maxsize=8192)
def _clock_changes(expression: str, timezone: str, now: datetime) -> tuple[ClockChange, ...]:
    try:
        schedule = parse(expression, timezone)
        if not isinstance(grammar.parse_expression(expression), grammar.Cron):
            return ()
    except ScheduleError:
        return ()
    found = (_at_change(schedule, change) for change in _changes(timezone, now))
    return tuple(one for one in found if one is not None)


@lru_cache(maxsize=512)
def _changes(timezone: str, now: datetime) -> tuple[zones.Change, ...]:
    return tuple(zones.changes(zones.zone(timezone), now, now + LOOK))


def _at_change(schedule: Schedule, change: zones.Change) -> ClockChange | None:
    """Return what a change of the clocks does to a schedule; None if nothing, or if its slots are many."""
    if (schedule.count(change.at - DAY / 2, change.at + DAY / 2) or 0) > MOST_A_DAY:
        return None
    begin = change.at - abs(change.after - change.before) - SECOND
    for slot in next_slots(schedule, begin, 3):
        if slot.at > change.at + DAY:
            break
        if slot.remarks:
            return ClockChange(f"{change.before:%Y-%m-%d}", slot.at, slot.remarks[0])
    return None
