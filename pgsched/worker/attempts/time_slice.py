"""Time slices: after a millisecond of handlers that never wait, yield to the event loop, so that answers are read and
outcomes written. One slice is for all tasks of a worker, and not for each one.
"""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.001


class TimeSlice:
    """When the present slice ends, in monotonic seconds."""

    def __init__(self) -> None:
        self.ends_at = 0.0
        self._ended = False

    def end(self) -> None:
        """The next slice begins when the loop has been round."""
        if not self._ended:
            self._ended = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._ended = False
        self.ends_at = time.monotonic() + SLICE_S
