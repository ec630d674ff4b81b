"""The prefetch: how many runs a worker claims ahead of its free places.

The prefetch is what the worker finishes in about 100 ms, and 0 for slow work.
"""

from __future__ import annotations

MOST_AHEAD = 8000  # runs that the fastest worker finishes in PREFETCH_S
PREFETCH_S = 0.1
SHORTEST_RATE_S = 0.002  # the shortest time from which a rate is computed
UPDATE_S = 0.001
LONGEST_WINDOW_S = 1.0  # the longest window in which ended runs are counted, when there is little work
OLD_WEIGHT = 0.9  # weight of the average so far against one more run


class Pace:
    """A moving average of how long a run takes.

    `prefetch`: how many runs beyond the free places may be claimed now.
    """

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.prefetch = 0
        self._average_s: float | None = None
        self._began, self._since, self._ended, self._ended_before = 0.0, 0.0, 0, 0
        self._look_at = 0.0

    def took(self, seconds: float, now: float, count: int = 1) -> None:
        """Note that `count` runs have ended, which took `seconds` each."""
        average_s = self._average_s
        self._average_s = seconds if average_s is None else average_s + (seconds - average_s) * (1 - OLD_WEIGHT**count)
        self._ended += count
        if now >= self._look_at:
            self._look(self._average_s, now, count)

    def waited(self, since: float, now: float) -> None:
        """Leave the idle time from `since` to `now` out of the window.

        Runs that end in an idle time show how much work there was, not how fast the worker is.
        """
        if now - since < PREFETCH_S:
            self._since += now - max(since, self._since)

    def _look(self, average_s: float, now: float, count: int) -> None:
        self._look_at = now + UPDATE_S
        if now >= min(self._since + PREFETCH_S, self._began + LONGEST_WINDOW_S):
            self._ended_before = self._ended - count if now < self._since + 2 * PREFETCH_S else 0
            self._began, self._since, self._ended = now, now, count
        # Places that are busy with slow runs do not help. So the limit is twice the number of runs that really ended
        # in one window. If the work has only begun, it is the number that would have ended at that rate.
        ended = 2 * max(self._ended, self._ended_before)
        if not self._ended_before:
            ended = max(ended, int(self._ended * PREFETCH_S / max(now - self._since, SHORTEST_RATE_S)))
        ahead = min(self.concurrency * PREFETCH_S / max(average_s, 1e-5), ended)
        self.prefetch = 0 if average_s >= PREFETCH_S else int(min(MOST_AHEAD, ahead))
