"""When something that is done again and again is due.

The rule: from `at` on it is done in a round that there is anyway; at `by`, and not later, there is a round for it. So
what is done seldom needs no rounds of its own. In a lull it is done only once `by` has come.
"""

from __future__ import annotations


class Due:
    """All times are monotonic seconds of this process."""

    def __init__(self, at: float) -> None:
        self.exactly(at)

    def exactly(self, at: float) -> None:
        """Not before, and not later."""
        self.at = self.by = at

    def within(self, now: float, period_s: float, early_s: float) -> None:
        """A period from now at the latest, and by so much sooner (half of the period at most)."""
        self.by = now + period_s
        self.at = self.by - min(early_s, period_s / 2)

    def now(self, now: float, *, lull: bool = False) -> bool:
        """May it be done? In a `lull` only if it can wait no longer."""
        return now >= (self.by if lull else self.at)
