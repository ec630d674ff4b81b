"""Decide all slots up to now under a job's catch-up policy.

Invariant: every slot is decided once, and a long outage costs a few rows, not one for every slot.

Time falls into stretches, oldest first. Excluded dates cut across all of them:

1. slots after their start deadline
2. misfires outside the catch-up window
3. other misfires
4. slots on time

Each slot lies in exactly one stretch. A stretch that does not run becomes one row with its range and count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import NamedTuple

from pgsched.core.policies import CATCH_UP
from pgsched.core.schedule.calendar import OPEN, Calendar, Part
from pgsched.core.schedule.cron import Schedule
from pgsched.core.schedule.shifted import Shifted

# The most slots on time that one call returns. Further slots stay undecided. The next slot that the call returns then
# lies in the past, so the caller decides again at once.
BATCH = 1000
INSTANT = timedelta(microseconds=1)
# Excluded stretches, and those between them, that are told apart after an outage: less than a second of work. Of a
# schedule whose slots a calendar shifts, each takes milliseconds.
MOST_PARTS, MOST_SHIFTED_PARTS = 1000, 100
TOO_MANY = "late, and before more excluded times than are told apart"
TOO_LATE, OUTSIDE = "start_deadline passed", "outside catch_up_window"
ONLY_LATEST = "only the latest late slot runs"
Stretch = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A job's policy for slots that are decided late.

    `policy`: one of CATCH_UP.
    `misfire_after`: a slot decided up to this late is on time.
    `window`: a later slot runs only if it is not older than this.
    `max_runs`: the most slots that policy `all` runs after one outage.
    `start_deadline`: slots older than this never run; None: no deadline.
    """

    policy: str
    misfire_after: timedelta
    window: timedelta
    max_runs: int
    start_deadline: timedelta | None


class Decision(NamedTuple):
    """What happens to a slot, or to a stretch of slots with one row.

    `verdict`: `run`, `skipped` or `missed`.
    `covers_from`, `covers_until`, `covers_count`: the slots that the row stands for, itself included.
    `in_turn`: one of several late slots that all run, one after the other.
    `interval_start`: the slot before the first of those that the row runs for.
    `nominal_at`: where the schedule has the slot, if a calendar has shifted it.
    """

    scheduled_at: datetime
    verdict: str
    reason: str | None
    covers_from: datetime | None
    covers_until: datetime | None
    covers_count: int | None
    in_turn: bool = False
    interval_start: datetime | None = None
    nominal_at: datetime | None = None


def decide(
    schedule: Schedule,
    decided_until: datetime,
    now: datetime,
    policy: CatchUp,
    ends_at: datetime | None = None,
    calendar: Calendar = OPEN,
) -> tuple[list[Decision], datetime, datetime | None]:
    """Return the decisions for all slots in (decided_until, now], the new high-water mark, and the next slot.

    A slot at `ends_at` is the last possible one.
    """
    if policy.policy not in CATCH_UP:
        raise ValueError(f'catch-up policy "{policy.policy}" is not one of {", ".join(CATCH_UP)}')
    end = now if ends_at is None else min(now, ends_at)
    decisions: list[Decision] = []
    if schedule.fixed_delay is None and decided_until < end:
        decisions = _decided(schedule, (decided_until, end), now, policy, calendar)
    mark = max([decided_until, *(_end(decision) for decision in decisions)])
    following = schedule.after(mark)
    return decisions, mark, None if following and ends_at and following > ends_at else following


def decide_one(slot: datetime, now: datetime, policy: CatchUp, calendar: Calendar = OPEN) -> Decision:
    """Return the decision for a single due slot (`run_at`)."""
    late = now - slot
    if excluded := calendar.excluded(slot):
        return Decision(slot, "skipped", excluded, None, None, None)
    if policy.start_deadline is not None and late > policy.start_deadline:
        return Decision(slot, "missed", TOO_LATE, None, None, None)
    if late <= policy.misfire_after:
        return _on_time(slot)
    if late > policy.window:
        return Decision(slot, "missed", OUTSIDE, None, None, None)
    if policy.policy == "skip":
        return Decision(slot, "missed", "late, and the catch-up policy is skip", None, None, None)
    return Decision(slot, "run", "late", None, None, None, in_turn=policy.policy == "all")


def _decided(schedule: Schedule, span: Stretch, now: datetime, policy: CatchUp, calendar: Calendar) -> list[Decision]:
    """Return all decisions of a stretch in order, up to the last slot on time that this call has room for."""
    start, end = span
    expired = min(_older_than(now, policy.start_deadline, start), end)
    late = min(max(_older_than(now, policy.misfire_after, start), expired), end)
    opens = min(max(_older_than(now, policy.window, start), expired), late)
    cut = _too_many_parts(calendar, start, end, MOST_SHIFTED_PARTS if isinstance(schedule, Shifted) else MOST_PARTS)
    found, allowed = _excluded(schedule, calendar.parts(cut, end))
    found += _one_row(schedule, start, cut, "missed", TOO_MANY)
    for first, last, reason in ((start, expired, TOO_LATE), (expired, opens, OUTSIDE)):
        for part_start, part_end in _within(allowed, first, last):
            found += _one_row(schedule, part_start, part_end, "missed", reason)
    found += _misfires(schedule, _within(allowed, opens, late), policy)
    on_time = chain.from_iterable(schedule.between(*part) for part in _within(allowed, late, end))
    running = [_on_time(slot) for slot in islice(on_time, BATCH)]
    if len(running) == BATCH:  # slots after the last of these wait for the next call, excluded slots as well
        found = [decision for decision in found if decision.scheduled_at < running[-1].scheduled_at]
    return sorted(found + running, key=lambda decision: decision.scheduled_at)


def _excluded(schedule: Schedule, parts: Iterable[Part]) -> tuple[list[Decision], list[Stretch]]:
    """Return the rows of excluded slots, and the stretches between them. Excluded times without a slot divide none."""
    found: list[Decision] = []
    allowed: list[Stretch] = []
    for part in parts:
        rows = () if part.excluded is None else _one_row(schedule, part.after, part.until, "skipped", part.excluded)
        before = len(found)
        found += rows
        if len(found) == before and allowed and allowed[-1][1] == part.after:
            allowed[-1] = (allowed[-1][0], part.until)
        elif len(found) == before:
            allowed.append((part.after, part.until))
    return found, allowed


def _too_many_parts(calendar: Calendar, start: datetime, end: datetime, most: int) -> datetime:
    """Return the instant before which excluded times are not told apart: `start`, unless they make more parts.

    Rules that repeat each day would make some rows for each day of an outage.
    """
    while calendar.rules and next(islice(calendar.parts(start, end), most, None), None) is not None:
        start += (end - start) / 2
    return start


def _older_than(now: datetime, age: timedelta | None, floor: datetime) -> datetime:
    """Return the end of the stretch of slots older than `age`; a slot of exactly that age is not older."""
    if age is None or age >= now - floor:
        return floor
    return max(now - age - INSTANT, floor)


def _within(stretches: Sequence[Stretch], start: datetime, end: datetime) -> list[Stretch]:
    """Return the stretches cut to (start, end]."""
    cut = ((max(first, start), min(last, end)) for first, last in stretches)
    return [(first, last) for first, last in cut if first < last]


def _misfires(schedule: Schedule, stretches: list[Stretch], policy: CatchUp) -> list[Decision]:
    """Return the decisions for misfires inside the catch-up window, under the job's policy."""
    match policy.policy:
        case "latest":
            return _latest(schedule, stretches)
        case "skip":
            return _missed(schedule, stretches, "late, and the catch-up policy is skip")
        case "earliest":
            return _oldest(schedule, stretches, 1, "only the earliest late slot runs")
        case _:
            limit = max(policy.max_runs, 0)
            found = _oldest(schedule, stretches, limit, f"more than {limit} late slots")
            return [row._replace(in_turn=True) if row.verdict == "run" else row for row in found]


def _latest(schedule: Schedule, stretches: list[Stretch]) -> list[Decision]:
    """Return one run at the newest slot of the last stretch, which stands for its stretch; older stretches are missed.

    There are several stretches where excluded dates lie between them.
    """
    rows = _missed(schedule, stretches, ONLY_LATEST)
    if rows:
        row = rows[-1]
        rows[-1] = Decision(
            row.scheduled_at, "run", late_reason(row.covers_count), row.covers_from, row.covers_until, row.covers_count
        )
    return rows


def late_reason(count: int | None) -> str:
    """Return the reason of a late slot that stands for `count` slots (None: very many)."""
    return "late" if count == 1 else f"late, runs once for {count or 'very many'} slots"


def _oldest(schedule: Schedule, stretches: list[Stretch], runs: int, reason: str) -> list[Decision]:
    """Return one run for each of the first `runs` slots, and one missed row for the rest of each stretch."""
    found: list[Decision] = []
    for start, end in stretches:
        running = list(islice(schedule.between(start, end), runs))
        runs -= len(running)
        found += [Decision(slot, "run", "late", None, None, None) for slot in running]
        found += _one_row(schedule, running[-1] if running else start, end, "missed", reason)
    return found


def _missed(schedule: Schedule, stretches: list[Stretch], reason: str) -> list[Decision]:
    """Return one missed row for each stretch that has slots."""
    return [row for start, end in stretches for row in _one_row(schedule, start, end, "missed", reason)]


def _one_row(schedule: Schedule, start: datetime, end: datetime, verdict: str, reason: str) -> Iterator[Decision]:
    """Yield one row for all slots in (start, end], at the newest of them; nothing where there is no slot."""
    newest = schedule.last(start, end) if start < end else None
    if newest is not None:
        yield Decision(newest, verdict, reason, schedule.after(start), newest, schedule.count(start, end))


def _on_time(slot: datetime) -> Decision:
    return Decision(slot, "run", None, None, None, None)


def _end(decision: Decision) -> datetime:
    return decision.covers_until or decision.scheduled_at
