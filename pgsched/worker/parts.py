"""The background parts of a worker: tasks on its event loop that run until it ends.

Invariant: a part that fails ends the worker; no part ends silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pgsched.errors import PgschedError

END_S = 2.0


class Parts:
    """The background parts of one worker.

    - `is_ending()`: the worker was asked to stop.
    - `on_bug(error)`: called when a part fails.
    """

    def __init__(self, is_ending: Callable[[], bool], on_bug: Callable[[BaseException], None]) -> None:
        self._is_ending = is_ending
        self._on_bug = on_bug

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a part."""
        task = asyncio.get_running_loop().create_task(coroutine)
        task.add_done_callback(self._ended)
        return task

    async def end(self, *parts: asyncio.Task[None]) -> None:
        """Cancel these parts and wait, with a second cancellation after END_S.

        The first one makes psycopg cancel the statement and wait for the server's answer, which may never come.
        """
        for part in parts:
            part.cancel()
        await asyncio.wait(parts, timeout=END_S)
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)

    def _ended(self, done: asyncio.Task[None]) -> None:
        if done.cancelled():
            if not self._is_ending():  # a handler has cancelled tasks that are not its own
                self._on_bug(PgschedError("a part of the worker was cancelled from outside"))
        elif (error := done.exception()) is not None:
            self._on_bug(error)
