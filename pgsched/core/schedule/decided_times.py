"""Which nominal slots of a job are decided, where a calendar shifts slots.

A shifted slot may come before its nominal instant, or days after it. So the mark of the job, which lies on the shifted
instants, does not say which nominal slots are decided. This matters when the calendar changes. A nominal slot that was
decided before the change must not run again at another instant, and one that was not must not be lost.

Invariant: a nominal slot is decided once. It is decided if it is not after `at`, except in `behind`; and in `ahead`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from pgsched.core.schedule.wall_times import intersect, join, subtract
from pgsched.errors import ScheduleError

MICROSECOND = timedelta(microseconds=1)
BEGINS = itemgetter(0)
# Stretches of nominal instants without their end, disjoint and in order.
Stretches = tuple[tuple[datetime, datetime], ...]
# Stretches that are kept: those beyond, the latest ones, count as if no calendar shifted slots.
MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class DecidedTimes:
    """Which nominal instants are decided.

    `at`: the mark of the job when this was found out.
    `ahead`: instants after it that are decided: their slots were shifted to earlier instants.
    `behind`: instants up to it that are not: their slots were shifted to later ones.
    """

    at: datetime
    ahead: Stretches = ()
    behind: Stretches = ()

    def skip(self, instant: datetime) -> datetime | None:
        """Return the last instant of the decided stretch in which an instant lies; None if it is not decided."""
        if (found := find_stretch(self.ahead, instant)) is not None:
            return found[1] - MICROSECOND
        if instant > self.at or find_stretch(self.behind, instant) is not None:
            return None
        following = bisect_right(self.behind, instant, key=BEGINS)
        return min(self.at, self.behind[following][0] - MICROSECOND) if following < len(self.behind) else self.at

    def undecided(self, until: datetime) -> Stretches:
        """Return the undecided instants up to `until`."""
        return tuple(subtract(join([*self.behind, (self.at + MICROSECOND, until + MICROSECOND)]), self.ahead))

    def moved(self, mark: datetime, ahead: Iterable[tuple[datetime, datetime]],
              behind: Iterable[tuple[datetime, datetime]]) -> DecidedTimes:  # fmt: skip
        """Return what is decided once all slots up to `mark` are.

        `ahead`, `behind`: the instants after `mark` whose slots lie at it or before it, and the instants up to it whose
        slots lie after it.
        """
        later = ((max(begin, mark + MICROSECOND), end) for begin, end in self.ahead)
        decided = join([*((begin, end) for begin, end in later if begin < end), *ahead])
        left = intersect(join(behind), self.undecided(mark))
        return DecidedTimes(mark, tuple(decided[:MOST_KEPT]), tuple(left[-MOST_KEPT:]))

    def to_text(self) -> str:
        """Return the value as JSON for the column `shifts` of `jobs`."""
        found: dict[str, Any] = {"at": self.at.isoformat()}
        for name, stretches in (("ahead", self.ahead), ("behind", self.behind)):
            if stretches:
                found[name] = [[begin.isoformat(), end.isoformat()] for begin, end in stretches]
        return json.dumps(found)


def parse_decided_times(value: Mapping[str, Any] | None) -> DecidedTimes | None:
    """Return the value of the column `shifts` of `jobs`; None for null. Raises ScheduleError for any other value."""
    if value is None:
        return None

    def stretches(name: str) -> Stretches:
        return tuple((_instant(begin), _instant(end)) for begin, end in value.get(name, ()))

    try:
        return DecidedTimes(_instant(value["at"]), stretches("ahead"), stretches("behind"))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ScheduleError("shifts", f"cannot be read: {type(error).__name__}: {error}") from None


def find_stretch(stretches: Stretches, instant: datetime) -> tuple[datetime, datetime] | None:
    """Return the stretch in which an instant lies; None if it lies in none."""
    at = bisect_right(stretches, instant, key=BEGINS) - 1
    return stretches[at] if at >= 0 and instant < stretches[at][1] else None


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
