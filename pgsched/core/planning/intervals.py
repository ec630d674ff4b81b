"""Subtract the slots that have rows already from a stretch of slots.

Invariant: a slot that has a row keeps it. A stretch around such rows is split into parts, each at its newest slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from pgsched.core.planning.catchup import ONLY_LATEST, Decision, late_reason
from pgsched.core.schedule.cron import Schedule

INSTANT = timedelta(microseconds=1)
# The first and the last slot that a row stands for.
CoveredSlots = tuple[datetime, datetime]
# The first and the newest slot of a part, and how many slots it has (None: very many).
Part = tuple[datetime, datetime, int | None]


def uncovered_parts(
    schedule: Schedule, start: datetime, end: datetime, known: Collection[CoveredSlots]
) -> Iterator[Part]:
    """Yield the parts of (start, end] whose slots have no row in `known`, oldest first."""
    for first, last in (*sorted(known), (end + INSTANT, end)):
        following = schedule.after(first - INSTANT)
        if first <= end and (following is None or following > last):
            continue  # a row that is not for a slot of the schedule, such as a manual run
        stop = min(first - INSTANT, end)
        if start < stop and (newest := schedule.last(start, stop)) is not None:
            yield schedule.after(start) or newest, newest, schedule.count(start, stop)
        start = max(start, last)


def has_row(slot: datetime, known: Collection[CoveredSlots]) -> bool:
    """Check whether one of these rows stands for the slot."""
    return any(first <= slot <= last for first, last in known)


def without_covered(schedule: Schedule, decision: Decision, known: Collection[CoveredSlots]) -> list[Decision]:
    """Return the parts of a decision that remain after slots with rows are removed.

    A stretch that runs once runs at its newest slot. What remains of a stretch has no interval yet.
    """
    slot, first, last = decision.scheduled_at, decision.covers_from, decision.covers_until
    if first is None or last is None:
        return [] if has_row(slot, known) else [decision]
    if not any(begin <= last and first <= end for begin, end in known):
        return [decision]
    found = [
        decision._replace(scheduled_at=newest, covers_from=since, covers_until=newest, covers_count=count)
        for since, newest, count in uncovered_parts(schedule, first - INSTANT, last, known)
    ]
    if decision.verdict != "run":
        return found
    return [row._replace(reason=late_reason(row.covers_count)) if row.scheduled_at == slot
            else row._replace(verdict="missed", reason=ONLY_LATEST) for row in found]  # fmt: skip
