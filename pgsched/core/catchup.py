"""The rule: every slot up to now is decided once, and a long outage costs a few rows, not one for every slot.

Time falls into stretches, oldest first: slots past their start deadline, misfires, and slots on time. Each slot lies
in exactly one stretch, and a stretch that does not run becomes one row that carries its range and count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from pgsched.core.schedule import Schedule

POLICIES = ("latest", "skip", "earliest", "all")
# One call never returns more than about this many runs. What is left stays undecided, and the next slot that is
# returned then lies in the past, so the caller comes straight back.
BATCH = 1000
INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A job's policy for slots that are decided late."""

    policy: str
    misfire_after: timedelta
    window: timedelta
    max_runs: int
    start_deadline: timedelta | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a slot. The `covers_` values say which slots the row stands for, itself included."""

    scheduled_at: datetime
    verdict: str
    reason: str | None
    covers_from: datetime | None
    covers_until: datetime | None
    covers_count: int | None


def decide(
    schedule: Schedule, decided_until: datetime, now: datetime, policy: CatchUp
) -> tuple[list[Decision], datetime, datetime | None]:
    """The decisions for all slots in (decided_until, now], the new high-water mark, and the next slot after it."""
    if policy.policy not in POLICIES:
        raise ValueError(f'catch-up policy "{policy.policy}" is not one of {", ".join(POLICIES)}')
    decisions: list[Decision] = []
    if schedule.fixed_delay is None and decided_until < now:
        expired = _older_than(now, policy.start_deadline, decided_until)
        late = max(_older_than(now, policy.misfire_after, decided_until), expired)
        decisions += _missed(schedule, decided_until, expired, "start_deadline passed")
        decisions += _misfires(schedule, expired, late, now, policy)
        decisions += map(_on_time, islice(schedule.between(late, now), BATCH))
    mark = max([decided_until, *(_end(decision) for decision in decisions)])
    return decisions, mark, schedule.after(mark)


def _older_than(now: datetime, age: timedelta | None, floor: datetime) -> datetime:
    """The end of the stretch of slots older than `age`; a slot of exactly that age is not older."""
    if age is None or age >= now - floor:
        return floor
    return max(now - age - INSTANT, floor)


def _misfires(schedule: Schedule, start: datetime, end: datetime, now: datetime, policy: CatchUp) -> Iterator[Decision]:
    match policy.policy:
        case "latest":
            yield from _latest(schedule, start, end)
        case "skip":
            yield from _missed(schedule, start, end, "late, and the catch-up policy is skip")
        case "earliest":
            yield from _oldest(schedule, start, end, 1, "only the earliest late slot runs")
        case "all":
            opens = min(_older_than(now, policy.window, start), end)
            limit = max(min(policy.max_runs, BATCH), 0)
            yield from _missed(schedule, start, opens, "outside catch_up_window")
            yield from _oldest(schedule, opens, end, limit, f"more than {limit} late slots")


def _latest(schedule: Schedule, start: datetime, end: datetime) -> Iterator[Decision]:
    for row in _missed(schedule, start, end, None):
        reason = "late" if row.covers_count == 1 else f"late, runs once for {row.covers_count or 'very many'} slots"
        yield Decision(row.scheduled_at, "run", reason, row.covers_from, row.covers_until, row.covers_count)


def _oldest(schedule: Schedule, start: datetime, end: datetime, runs: int, reason: str) -> Iterator[Decision]:
    for slot in islice(schedule.between(start, end), runs):
        yield Decision(slot, "run", "late", None, None, None)
        start = slot
    yield from _missed(schedule, start, end, reason)


def _missed(schedule: Schedule, start: datetime, end: datetime, reason: str | None) -> Iterator[Decision]:
    """One row for all slots in (start, end], at the newest of them; none when there is no slot."""
    newest = schedule.last(start, end) if start < end else None
    if newest is not None:
        yield Decision(newest, "missed", reason, schedule.after(start), newest, schedule.count(start, end))


def _on_time(slot: datetime) -> Decision:
    return Decision(slot, "run", None, None, None, None)


def _end(decision: Decision) -> datetime:
    return decision.covers_until or decision.scheduled_at
