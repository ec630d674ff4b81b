"""The background parts of a worker: tasks on its loop that go on until it ends.

Invariant: a part that fails ends the worker; none ends silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pgsched.errors import PgschedError

END_S = 2.0


class Parts:
    """Starts parts and ends them. `is_ending()`: the worker has been told to stop; `on_bug(error)`: a part failed."""

    def __init__(self, is_ending: Callable[[], bool], on_bug: Callable[[BaseException], None]) -> None:
        self._is_ending = is_ending
        self._on_bug = on_bug

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a part."""
        task = asyncio.get_running_loop().create_task(coroutine)
        task.add_done_callback(self._ended)
        return task

    async def end(self, *parts: asyncio.Task[None]) -> None:
        """Cancel, twice if need be: the first makes psycopg cancel the statement and wait for a server to answer."""
        for part in parts:
            part.cancel()
        await asyncio.wait(parts, timeout=END_S)
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)

    def _ended(self, done: asyncio.Task[None]) -> None:
        if done.cancelled():
            if not self._is_ending():  # by a handler that cancels whatever task it finds
                self._on_bug(PgschedError("a part of the worker was cancelled from outside"))
        elif (error := done.exception()) is not None:
            self._on_bug(error)
