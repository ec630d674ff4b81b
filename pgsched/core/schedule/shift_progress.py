"""Which nominal slots of a shifted schedule are decided, once all slots up to the mark of its job are.

Invariant: as long as the calendar stays, a nominal slot is decided exactly when its slot lies up to the mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from pgsched.core.schedule import zones
from pgsched.core.schedule.decided_times import DecidedTimes
from pgsched.core.schedule.shifted import Shift, Shifted
from pgsched.core.schedule.wall_times import WHOLE_DAY_US, Walls, intersect, join, on_day, subtract

DAY, INSTANT = timedelta(days=1), timedelta(microseconds=1)


def decided_at(schedule: Shifted, mark: datetime) -> DecidedTimes:
    """Return which nominal instants are decided once all slots up to `mark` are."""
    crossed = crossing(schedule, mark)
    ahead, behind = ([], crossed) if schedule.days.step > 0 else (crossed, [])
    if schedule.decided is None:
        return DecidedTimes(mark, tuple(ahead), tuple(behind))
    return schedule.decided.moved(mark, ahead, behind)


def overtaken(schedule: Shifted) -> Iterator[Shift]:
    """Yield the slots that are not decided although they lie up to `decided.at`, each with its nominal instant.

    There are none until the calendar changes. Those that share their instant with a decided slot are left out.
    """
    old, step, nominals = schedule.decided, schedule.days.step, schedule.nominal
    if old is None:
        return
    crossed = crossing(schedule, old.at)
    left = subtract(old.behind, crossed if step > 0 else [])
    for begin, end in [*left, *(subtract(crossed, old.ahead) if step < 0 else [])]:
        for nominal in nominals.between(begin - INSTANT, end - INSTANT):
            slot = schedule.target(nominal) or nominal
            shared = slot != nominal and nominals.after(slot - INSTANT) == slot and schedule.is_decided(slot)
            if not shared and not schedule.is_decided(nominal):
                yield slot, nominal


def crossing(schedule: Shifted, mark: datetime) -> list[tuple[datetime, datetime]]:
    """Return the nominal instants on one side of `mark` whose slots lie on its other side.

    `next_business_day`: the instants up to `mark` with slots after it. `previous`: the instants after `mark` with slots
    up to it. Stretches without a nominal slot are left out.
    """
    if not schedule.days.step:
        return []
    # slots that a gap has moved have a time of day of their own
    moved = [(slot, slot + INSTANT) for slot in schedule.moved_by_gaps(schedule.days.day_of(mark))]
    crossed = [point for point in moved if _crosses(schedule, point[0], mark)]
    return [
        stretch for stretch in join([*subtract(join(_stretches(schedule, mark)), moved), *crossed])
        if (slot := schedule.nominal.after(stretch[0] - INSTANT)) is not None and slot < stretch[1]
    ]  # fmt: skip


def _stretches(schedule: Shifted, mark: datetime) -> Iterator[tuple[datetime, datetime]]:
    day = schedule.days.day_of(mark)
    reached = schedule.days.reached(day, mark)
    other_side = [(reached, WHOLE_DAY_US)] if schedule.days.step > 0 else [(0, reached)]
    for source, arriving, passing in schedule.days.on_their_way(day):
        yield from _cut(schedule, source, join([*intersect(arriving, other_side), *passing]), mark)


def _cut(schedule: Shifted, day: date, walls: Walls, mark: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the instants of parts of a day that lie up to `mark`, or for `previous` after it."""
    for part in walls:
        for begins, ends in zones.instants_between(schedule.days.tz, on_day(day, part[0]), on_day(day, part[1])):
            limit = mark + INSTANT
            low, high = (begins, min(ends, limit)) if schedule.days.step > 0 else (max(begins, limit), ends)
            if low < high:
                yield low, high


def _crosses(schedule: Shifted, nominal: datetime, mark: datetime) -> bool:
    slot = schedule.target(nominal)
    if slot is None:
        return False
    return nominal <= mark < slot if schedule.days.step > 0 else slot <= mark < nominal
