"""How a claimer waits: it naps after work and looks again by itself; only when that finds nothing is it to be woken.

A commit that notifies waits for every other commit that does, so that many enqueuers would slow each other down for
the sake of workers that are awake anyway. A worker therefore says until when it may be asleep, and nobody notifies
after that. It looks twice more soon after saying so: a transaction under way may not have seen it.
"""

from __future__ import annotations

NAP_S = 0.003
LOOK_AGAIN_S = (0.02, 0.1)


class Rest:
    """What one claimer found, and what follows for its next wait. All times are monotonic seconds of this process."""

    def __init__(self, poll_s: float) -> None:
        self.poll_s = poll_s
        self.asleep_s = 2 * poll_s + 0.5
        self._asleep_until = 0.0
        self._idle = 0
        self._looks = len(LOOK_AGAIN_S)

    def found(self, anything: bool) -> None:
        """A round is over."""
        self._idle = 0 if anything else self._idle + 1

    def must_ask(self, now: float) -> bool:
        """Is it time to say that this worker sleeps? Only one that found nothing says so."""
        return self._idle > 0 and now + self.poll_s > self._asleep_until

    def asked(self, now: float) -> None:
        """Whoever makes a run from now on notifies."""
        if now > self._asleep_until:
            self._looks = 0
        self._asleep_until = now + self.asleep_s

    def wait_s(self, now: float) -> float:
        """Seconds to wait for a notification before the next look; 0: the worker must say first that it sleeps."""
        sure_s = self._asleep_until - now
        if sure_s <= NAP_S:
            return 0.0 if self._idle else NAP_S
        if self._looks < len(LOOK_AGAIN_S):
            self._looks += 1
            return LOOK_AGAIN_S[self._looks - 1]
        return min(self.poll_s, sure_s)
