"""The lead: a batch is prepared as long before its instant as batches take, and commits at the instant itself.

Otherwise every slot would start later by the time that it takes to write the rows of all of them.
"""

from __future__ import annotations

FIRST_S = 0.01
SHORTEST_S = 0.003
LONGEST_S = 0.25  # jobs are locked for so long; who edits one waits
MARGIN = 1.25
FADE = 0.1


class Lead:
    """All times are monotonic seconds of this process."""

    def __init__(self) -> None:
        self._s = FIRST_S
        self._off_until = 0.0

    def s(self, now: float) -> float:
        """Seconds of lead that the next batch gets."""
        return 0.0 if now < self._off_until else self._s

    def took(self, seconds: float) -> None:
        """A batch took so long to prepare. A lead that is too short makes all of a batch late, so it grows at once, and
        shrinks slowly."""
        self._s = min(LONGEST_S, max(SHORTEST_S, risen(self._s, MARGIN * seconds)))

    def off_until(self, at: float) -> None:
        """What is due next cannot be prepared."""
        self._off_until = at


def risen(before: float, seen: float) -> float:
    """An estimate that grows to what is seen at once, and shrinks to it slowly."""
    return max(seen, before + FADE * (seen - before))
