"""Nudges: what ends a wait of the heartbeat's thread early (a request for a heartbeat, a look or the end).

Invariant: looks that notifications ask for take at most a twentieth of the time, because any role can send any number
of notifications.
"""

from __future__ import annotations

import threading
import time

SHARE = 20  # a look that a notification asked for is followed by a pause of 20 times its duration
LEAST_PAUSE_S = 0.02


class HeartbeatWaiter:
    """The requests to the heartbeat's thread: any thread makes them, one waits for them. Times are monotonic.

    - `stopped`: the thread is to end.
    - `hinted`: a notification asks for a look.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.hinted = False
        self._beat_now = False
        self._affordable_at = 0.0  # when the next look for a notification is allowed
        self._event = threading.Event()

    def stop(self) -> None:
        """End the thread after the heartbeat in progress."""
        self.stopped = True
        self._event.set()

    def beat_soon(self) -> None:
        """Ask for a heartbeat now: there is something to report."""
        self._beat_now = True
        self._event.set()

    def look_soon(self) -> None:
        """Ask for a look now: a notification has arrived."""
        if not self.hinted:
            self.hinted = True
            self._event.set()

    def looked(self, began: float) -> None:
        """Note the end of a look that a notification asked for; `began`: when it began."""
        now = time.monotonic()
        self._affordable_at = now + max(LEAST_PAUSE_S, SHARE * (now - began))

    def wait(self, seconds: float, *, heeding: bool) -> bool:
        """Wait up to `seconds`; return True where a heartbeat is asked for or the thread is to end.

        A hint ends the wait too (False) as soon as a look is allowed, where `heeding` is true.
        """
        until = time.monotonic() + seconds
        while not (self._beat_now or self.stopped):
            at = min(until, self._affordable_at) if self.hinted and heeding else until
            if (left_s := at - time.monotonic()) <= 0:
                return False
            if self._event.wait(left_s):
                self._event.clear()
        self._beat_now = False
        return True
