"""The interval of each slot: from the slot before it to itself; of a run for several slots, from where they begin.

Invariant: the interval of a slot depends on the sequence alone. Slots that are skipped are slots of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from pgsched.core.planning.catchup import Decision
from pgsched.core.schedule.base import Schedule
from pgsched.core.schedule.shifted import Shifted

INSTANT = timedelta(microseconds=1)
MOST_REMEMBERED = 4096
_newest: dict[Schedule, datetime] = {}


def previous_slot(schedule: Schedule, mark: datetime, first: datetime) -> datetime | None:
    """Return the slot before `first`, which is the first one after `mark`: mostly the mark itself."""
    if not isinstance(schedule, Shifted):
        is_slot = _newest.get(schedule) == mark or schedule.after(mark - INSTANT) == mark
        if len(_newest) >= MOST_REMEMBERED:
            _newest.clear()
        _newest[schedule] = first  # the next mark, mostly: a leader need not compute it again
        return mark if is_slot else schedule.before(first)
    sequence = replace(schedule, decided=None)
    if sequence.after(mark - INSTANT) == mark and sequence.after(mark) == first:
        return mark
    return sequence.before(first)


def add_intervals(schedule: Schedule, mark: datetime, decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions for all slots after `mark`, in their order, each with its interval and nominal instant."""
    found: list[Decision] = []
    before: datetime | None = None
    for decision in decisions:
        first = decision.covers_from or decision.scheduled_at
        before = before or previous_slot(schedule, mark, first)
        start = before if decision.verdict == "run" or first == decision.scheduled_at else None
        found.append(_with(schedule, decision, start or slot_before(schedule, decision.scheduled_at)))
        before = decision.covers_until or decision.scheduled_at
    return found


def interval_of(schedule: Schedule, decision: Decision) -> Decision:
    """Return a decision with its interval and nominal instant, whatever lies before it."""
    runs_for_all = decision.verdict == "run" and decision.covers_from is not None
    first = decision.covers_from if runs_for_all and decision.covers_from is not None else decision.scheduled_at
    return _with(schedule, decision, slot_before(schedule, first))


def slot_before(schedule: Schedule, slot: datetime) -> datetime | None:
    """Return the slot before this one, whether it is decided or not."""
    return (replace(schedule, decided=None) if isinstance(schedule, Shifted) else schedule).before(slot)


def _with(schedule: Schedule, decision: Decision, start: datetime | None) -> Decision:
    nominal = schedule.nominal_of(decision.scheduled_at) if isinstance(schedule, Shifted) else None
    return decision._replace(interval_start=start, nominal_at=nominal)
