"""How soon a claimer acts on a notification.

Invariant: a false notification costs little and delays nothing else. A notification is acted on at once. Each look that
finds nothing lowers the share of time for looks after notifications, down to a fortieth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SHARE, MOST_IN_VAIN = 4, 10


class NotificationWake:
    """The wake-ups of a claimer after notifications. All times are monotonic seconds of this process."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._in_vain = 0
        self._waking: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self.next_at = 0.0

    def looked(self, *, found: bool, took_s: float, now: float) -> None:
        """Note the result of a look at the queues that notifications named."""
        self._in_vain = 0 if found else min(self._in_vain + 1, MOST_IN_VAIN)
        self.next_at = now + SHARE * self._in_vain * took_s

    def wake(self, at: float) -> None:
        """Wake the claimer at this time, or now if the time has passed."""
        if (wait_s := at - time.monotonic()) <= 0:
            self._wake()
        elif self._waking is None or self._wakes_at > at:
            self.close()
            self._wakes_at = at
            self._waking = asyncio.get_running_loop().call_later(wait_s, self._woken)

    def _woken(self) -> None:
        self._waking = None
        self._wake()

    def close(self) -> None:
        """Cancel the planned wake-up."""
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
