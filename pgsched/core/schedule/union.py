"""Several cron expressions as one schedule: the union of their slots.

Invariant: an instant that several expressions name is one slot. At clock changes each expression keeps its own rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pgsched.core.schedule.base import Schedule, to_utc

INSTANT = timedelta(microseconds=1)
# Slots that are compared one by one when a stretch is counted: some 50 ms.
MOST_COMPARED = 5000


@dataclass(frozen=True, slots=True)
class Union(Schedule):
    """The union of several schedules, its `members`."""

    members: tuple[Schedule, ...]

    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after an instant; None when there is none."""
        return min(filter(None, (member.after(instant) for member in self.members)), default=None)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the slots in (start, end], oldest first. Each member is asked again only for the slots that it has."""
        found = [(slot, member) for member in self.members if (slot := member.after(start)) is not None and slot <= end]
        while found:
            slot = min(slot for slot, _ in found)
            yield slot
            # a member without a further slot in the stretch drops out
            following = [(member.after(slot) if own == slot else own, member) for own, member in found]
            found = [(own, member) for own, member in following if own is not None and own <= end]

    def count(self, start: datetime, end: datetime) -> int | None:
        """Return how many slots lie in (start, end]; None where that would take long.

        The member with the most slots is counted as a whole. Of the others, the slots that no member before them has
        are counted one by one: at most MOST_COMPARED.
        """
        start, end = to_utc(start), to_utc(end)
        counted: list[tuple[int, Schedule]] = []
        for member in self.members:
            if (n := member.count(start, end)) is None:
                return None
            counted.append((n, member))
        (found, first), *others = sorted(counted, key=lambda pair: pair[0], reverse=True)
        if sum(n for n, _ in others) > MOST_COMPARED:
            return None
        before = [first]
        for _, member in others:
            found += sum(not has_slot(before, slot) for slot in member.between(start, end))
            before.append(member)
        return found

    def wall_clock(self, slot: datetime) -> datetime:
        """Return the first wall clock by which a member names a slot."""
        return min(member.wall_clock(slot) for member in self.members_at(slot))

    def members_at(self, slot: datetime) -> tuple[Schedule, ...]:
        """Return the members that have this slot."""
        return tuple(member for member in self.members if has_slot([member], slot))


def has_slot(schedules: list[Schedule], instant: datetime) -> bool:
    """Check whether one of these schedules has a slot at an instant."""
    return any(one.after(instant - INSTANT) == instant for one in schedules)
