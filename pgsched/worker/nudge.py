"""What ends the wait of the heartbeat's thread before it is time: a beat is asked for, or a look, or the end.

Invariant: a notification makes the worker look, and no more often than that takes a twentieth of the time: anybody may
send any.
"""

from __future__ import annotations

import threading
import time

SHARE = 20  # a look that a notification asked for is followed by a pause of so many times what it took
LEAST_PAUSE_S = 0.02


class Nudge:
    """Thread-safe: asked from any thread, waited for by one. `stopped`: the thread is to end. Times are monotonic."""

    def __init__(self) -> None:
        self.stopped = False
        self.hinted = False  # a notification asks for a look
        self._beat_now = False
        self._affordable_at = 0.0  # when a notification may make it look again
        self._event = threading.Event()

    def stop(self) -> None:
        """The thread is to end after the beat in progress."""
        self.stopped = True
        self._event.set()

    def beat_soon(self) -> None:
        """There is something to say."""
        self._beat_now = True
        self._event.set()

    def look_soon(self) -> None:
        """A notification says that there is something to see."""
        if not self.hinted:
            self.hinted = True
            self._event.set()

    def looked(self, began: float) -> None:
        """A look that a notification asked for is over."""
        now = time.monotonic()
        self._affordable_at = now + max(LEAST_PAUSE_S, SHARE * (now - began))

    def wait(self, seconds: float, *, heeding: bool) -> bool:
        """Until it is time, or a beat is asked for (True), or a hint is affordable, if hints are heeded."""
        until = time.monotonic() + seconds
        while not (self._beat_now or self.stopped):
            at = min(until, self._affordable_at) if self.hinted and heeding else until
            if (left_s := at - time.monotonic()) <= 0:
                return False
            if self._event.wait(left_s):
                self._event.clear()
        self._beat_now = False
        return True
