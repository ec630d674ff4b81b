"""The rule: a slot that has its row keeps it, and a stretch around it is told in parts, each at its newest slot."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from pgsched.core.planning.catchup import ONLY_LATEST, Decision, late
from pgsched.core.schedule.cron import Schedule

INSTANT = timedelta(microseconds=1)
# the first and the last slot of a row
Known = tuple[datetime, datetime]
# the first and the newest slot, and how many there are (None: very many)
Part = tuple[datetime, datetime, int | None]


def parts(schedule: Schedule, start: datetime, end: datetime, known: Collection[Known]) -> Iterator[Part]:
    """The slots of (start, end] that no row of `known` stands for, oldest first."""
    for first, last in (*sorted(known), (end + INSTANT, end)):
        following = schedule.after(first - INSTANT)
        if first <= end and (following is None or following > last):
            continue  # a row beside the schedule, such as one that was asked for by hand
        stop = min(first - INSTANT, end)
        if start < stop and (newest := schedule.last(start, stop)) is not None:
            yield schedule.after(start) or newest, newest, schedule.count(start, stop)
        start = max(start, last)


def has_row(slot: datetime, known: Collection[Known]) -> bool:
    """Does one of these rows stand for the slot?"""
    return any(first <= slot <= last for first, last in known)


def without(schedule: Schedule, decision: Decision, known: Collection[Known]) -> list[Decision]:
    """What is left of a decision where rows are there already. A stretch that runs once does so at its newest slot."""
    slot, first, last = decision.scheduled_at, decision.covers_from, decision.covers_until
    if first is None or last is None:
        return [] if has_row(slot, known) else [decision]
    if not any(begin <= last and first <= end for begin, end in known):
        return [decision]
    found = [
        decision._replace(scheduled_at=newest, covers_from=since, covers_until=newest, covers_count=count)
        for since, newest, count in parts(schedule, first - INSTANT, last, known)
    ]
    if decision.verdict != "run":
        return found
    return [row._replace(reason=late(row.covers_count)) if row.scheduled_at == slot
            else row._replace(verdict="missed", reason=ONLY_LATEST) for row in found]  # fmt: skip
