"""Time slices: after 1 ms of handlers that never await, yield to the event loop.

The event loop then reads answers and writes outcomes. All tasks of a worker share one slice.
"""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.001


class TimeSlice:
    """The current time slice; `ends_at`: when it ends, in monotonic seconds."""

    def __init__(self) -> None:
        self.ends_at = 0.0
        self._ended = False

    def end(self) -> None:
        """End the slice; the next one begins after one round of the event loop."""
        if not self._ended:
            self._ended = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._ended = False
        self.ends_at = time.monotonic() + SLICE_S
