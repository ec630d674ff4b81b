"""The slots of jobs before and after a change, and the clock changes that move them.

Invariant: the functions that make a job's preview make these slots, so a plan shows what will be decided.

A job's own change may move its slots, and so may a change of the calendar that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from pgsched.core.jobs_file.difference import Change
from pgsched.core.jobs_file.model.columns import What
from pgsched.core.jobs_file.model.entries import JobsFile, State, Stored
from pgsched.core.planning.plan import SHADOW, undecided_after
from pgsched.core.schedule import grammar, zones
from pgsched.core.schedule.calendar import ReadRows, read_rows
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.core.schedule.preview import PreviewSlot, next_slots, upcoming
from pgsched.errors import ScheduleError

SLOTS = 5
LOOK = timedelta(days=370)  # clock changes are looked for so far ahead
# Columns whose change moves slots, or lets them run or not; and of them those that begin the sequence anew.
MOVING = {"schedule", "timezone", "run_at", "starts_at", "ends_at", "max_runs", "jitter", "excluded_dates", "calendar",
          "on_excluded", "mode", "paused"}  # fmt: skip
ANEW = {"schedule", "timezone", "run_at", "starts_at"}
ANEW_ONCE = {"schedule", "run_at"}  # of a job that runs once
NEW: Mapping[str, Any] = {"id": 0, "run_count": 0, "error": None, "next_run_at": None, "decided_until": None,
                          "shifts": None}  # fmt: skip
# What slots depend on, beside the instant after which they lie.
DECIDING = ("schedule", "timezone", "run_at", "ends_at", "max_runs", "run_count", "excluded", "calendar_times",
            "on_excluded", "mode")  # fmt: skip
# A schedule with more slots in the day around a clock change goes on evenly: nobody notices the change.
MOST_A_DAY = 30
DAY, SECOND, NONE = timedelta(days=1), timedelta(seconds=1), timedelta(0)


@dataclass(frozen=True, slots=True)
class Slots:
    """The next slots of one job: before the change (None: it is new), after it, and whether they differ."""

    old: tuple[PreviewSlot, ...] | None
    new: tuple[PreviewSlot, ...]

    @property
    def differ(self) -> bool:
        """Whether the change moves a slot, or excludes one, or lets one run that was excluded."""
        return self.old is not None and [*map(_place, self.old)] != [*map(_place, self.new)]


def _place(slot: PreviewSlot) -> tuple[datetime, bool]:
    return slot.at, is_excluded(slot)


def is_excluded(slot: PreviewSlot) -> bool:
    """Check whether a slot will be skipped because its time is excluded."""
    return slot.excluded not in (None, SHADOW)


@dataclass(frozen=True, slots=True)
class ClockChange:
    """What a clock change does to a slot.

    `day`: the date of the change, in the job's zone. `at`: the slot. `remark`: what happens.
    """

    day: str
    at: datetime
    remark: str


@dataclass(frozen=True, slots=True)
class Calendars:
    """The times of calendars that jobs share, by name, as `core.schedule.calendar` takes them: before and after."""

    before: Mapping[str, ReadRows] = field(default_factory=dict)
    after: Mapping[str, ReadRows] = field(default_factory=dict)

    @property
    def changed(self) -> frozenset[str]:
        """The names of calendars whose times change."""
        return frozenset(name for name, times in self.before.items() if self.after.get(name) != times)


def calendars_of(file: JobsFile, state: State) -> Calendars:
    """Return the calendars of a database, and those that there are after a file is applied."""
    before = {name: _rows(name, one.values) for (what, name), one in state.stored.items() if what is What.CALENDAR}
    declared = {name: _rows(name, one.values) for (what, name), one in file.entries.items() if what is What.CALENDAR}
    return Calendars(before, before | declared)


def _rows(name: str, values: Mapping[str, Any]) -> ReadRows:
    return read_rows((name, *time) for time in values["times"])


def preview_row(
    values: Mapping[str, Any], facts: Mapping[str, Any], calendars: Mapping[str, ReadRows], now: datetime
) -> dict[str, Any]:
    """Return a job as `core.schedule.preview` takes it, without its jitter.

    `facts`: what the database keeps about the job: id, anchor_at, decided_until, next_run_at, run_count, error, shifts.
    """
    anchor = facts.get("anchor_at") or values["starts_at"] or now
    row = {**NEW, **values, **facts, "now": now, "anchor_at": anchor, "jitter": NONE}
    row["excluded"] = tuple(map(tuple, values["excluded_dates"])) or None
    row["calendar_times"] = calendars.get(values["calendar"])
    if row["schedule"] is None:
        row["run_at"] = values["run_at"] or facts.get("run_at") or now
        if "next_run_at" not in facts:
            row["next_run_at"] = row["run_at"]
    return row


class Foresight:
    """The coming slots of jobs, before and after a file is applied. Jobs with equal slots are computed once."""

    def __init__(self, calendars: Calendars, now: datetime) -> None:
        self._calendars, self._now = calendars, now
        self._changed = calendars.changed
        self._known: dict[tuple[Any, ...], tuple[PreviewSlot, ...]] = {}

    def slots_of(self, change: Change) -> Slots | None:
        """Return the next slots of a job that is new or whose slots a change may move; None for any other change."""
        entry, stored = change.entry, change.stored
        if entry is None or entry.what is not What.JOB:
            return None
        if stored is None:
            return Slots(None, self._slots(preview_row(entry.values, {}, self._calendars.after, self._now)))
        values = merged_values(change, stored)
        columns = {one.column for one in change.columns}
        if not columns & MOVING and values["calendar"] not in self._changed:
            return None
        facts = facts_after(stored, values, columns, self._now)
        return Slots(
            self._slots(preview_row(stored.values, stored.row, self._calendars.before, self._now)),
            self._slots(preview_row(values, facts, self._calendars.after, self._now)),
        )

    def moved_by_calendars(self, jobs: Iterable[Stored]) -> dict[str, dict[str, Slots]]:
        """Return the slots of jobs that only their calendar moves, by calendar and name."""
        found: dict[str, dict[str, Slots]] = {}
        for job in jobs:
            calendar = job.values["calendar"]
            if calendar not in self._changed:
                continue
            old, new = (
                self._slots(preview_row(job.values, job.row, calendars, self._now))
                for calendars in (self._calendars.before, self._calendars.after)
            )
            if (slots := Slots(old, new)).differ:
                found.setdefault(calendar, {})[job.name] = slots
        return found

    def _slots(self, row: Mapping[str, Any]) -> tuple[PreviewSlot, ...]:
        expression = row["schedule"]
        after = self._now if expression is None else max(self._now, undecided_after(row))
        anchor = row["anchor_at"] if expression is not None and "@" in expression else None
        pending = expression is not None or row["next_run_at"] is not None
        key = (after, anchor, pending, str(row["shifts"]), *(row[column] for column in DECIDING))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(upcoming(row, SLOTS))
        return found


def merged_values(change: Change, stored: Stored) -> dict[str, Any]:
    """Return the values of a job after its change."""
    return {**stored.values, **{one.column: one.new for one in change.columns}}


def facts_after(stored: Stored, values: Mapping[str, Any], columns: set[str], now: datetime) -> dict[str, Any]:
    """Return what the database keeps about a job after a change, as its triggers do (pgsched.edit_schedule)."""
    facts = dict(stored.row)
    mark = facts["decided_until"]
    if columns & (ANEW if values["schedule"] is not None else ANEW_ONCE):
        facts |= {"anchor_at": None, "decided_until": max(mark or now, now), "next_run_at": now, "error": None}
    begins = facts["shifts"] is None and stored.values["on_excluded"] == "skip" != values["on_excluded"]
    if begins and values["schedule"] is not None and mark is not None:
        # without a calendar, the nominal slots up to the mark are decided
        facts["shifts"] = {"at": mark.isoformat()}
    return facts


def clock_changes(change: Change, now: datetime) -> tuple[ClockChange, ...]:
    """Return what clock changes in the next year do to the slots of a job that is new or moved."""
    entry = change.entry
    if entry is None or entry.what is not What.JOB or entry.values["schedule"] is None:
        return ()
    if change.stored is not None and not {one.column for one in change.columns} & {"schedule", "timezone"}:
        return ()
    return _clock_changes(entry.values["schedule"], entry.values["timezone"], now)


@lru_cache(maxsize=8192)
def _clock_changes(expression: str, timezone: str, now: datetime) -> tuple[ClockChange, ...]:
    try:
        schedule = parse(expression, timezone)
        if not grammar.crons_of(expression):
            return ()
    except ScheduleError:
        return ()
    found = (_at_change(schedule, change) for change in _changes(timezone, now))
    return tuple(one for one in found if one is not None)


@lru_cache(maxsize=512)
def _changes(timezone: str, now: datetime) -> tuple[zones.Change, ...]:
    return tuple(zones.changes(zones.zone(timezone), now, now + LOOK))


def _names_wall_clocks(schedule: Schedule, since: datetime, until: datetime) -> bool:
    """Check whether a schedule names wall clocks in [since, until): those that a change skips or repeats."""
    # UTC has no changes, so the same expression in UTC gives its wall clocks.
    first = parse(schedule.expression).after(since.replace(tzinfo=UTC) - SECOND)
    return first is not None and first < until.replace(tzinfo=UTC)


def _at_change(schedule: Schedule, change: zones.Change) -> ClockChange | None:
    """Return what a clock change does to a schedule; None if nothing, or if its slots are many."""
    if not _names_wall_clocks(schedule, *sorted((change.before, change.after))):
        return None
    count = schedule.count(change.at - DAY / 2, change.at + DAY / 2)
    if count is None or count > MOST_A_DAY:
        return None
    begin = change.at - abs(change.after - change.before) - SECOND
    for slot in next_slots(schedule, begin, 3):
        if slot.at > change.at + DAY:
            break
        if slot.remarks:
            return ClockChange(f"{change.before:%Y-%m-%d}", slot.at, slot.remarks[0])
    return None
