"""The rule: a thread cannot be killed, so it must be possible to leave one behind.

Unlike those of concurrent.futures, these threads are daemons: a stuck one never holds up the end of the process. The
worker bounds how many calls run at once; this only keeps up to `size` idle threads for the next calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")
Work = Callable[[], None]


class Threads(Generic[T]):
    """Runs calls that never raise, each in a thread of its own while it lasts."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start the call now; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            value = context.run(call)
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                loop.call_soon_threadsafe(_deliver, future, value)

        self._start(work)
        return future

    def close(self) -> None:
        """End the idle threads; busy ones end after their call."""
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._work.put(None)
            self._idle = 0

    def _start(self, work: Work) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._work.put(work)
                return
        threading.Thread(target=partial(self._serve, work), name="pgsched-handler", daemon=True).start()

    def _serve(self, work: Work | None) -> None:
        while work is not None:
            work()
            with self._lock:
                if self._closed or self._idle >= self._size:
                    return
                self._idle += 1
            work = self._work.get()


def _deliver(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)
