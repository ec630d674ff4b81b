"""Calls in daemon threads.

Invariant: a call never waits behind another one. Whoever submits it has a thread for it, an idle one or a new one.

A thread cannot be killed, so it must be possible to leave one behind. Unlike those of concurrent.futures these threads
are daemons: a stuck one never delays the end of the process. The worker limits how many calls run at once; this class
only keeps up to `size` idle threads for the next calls.

To wake a thread costs more than a short call. So one idle thread is woken at a time, and it wakes the next one if it
finds that more calls are waiting; a thread that has ended a call takes the next one without being woken. The event
loop is woken once for all results that it has not taken yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Work = Callable[[], None]


class Threads(Generic[T]):
    """Runs calls, each in a thread of its own while it lasts. The caller gets what a call raises, too."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: deque[Work] = deque()  # never more calls than there are idle threads
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_waking = False
        self._idle = 0
        self._lock = threading.Lock()
        self._closed = False
        self._results: _Results | None = None

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start the call now; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        run = contextvars.copy_context().run
        results = self._results
        if results is None or results.loop is not loop:
            results = self._results = _Results(loop)

        def work() -> None:
            try:
                results.add(future, run(call), None)
            except BaseException as error:
                results.add(future, None, error)

        self._start(work)
        return future

    def close(self) -> None:
        """End the idle threads; busy ones end after their call."""
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._wake.put(None)

    def _start(self, work: Work) -> None:
        with self._lock:
            if self._idle > len(self._waiting):
                self._waiting.append(work)
                self._wake_one()
                return
        # not the work itself: a thread keeps its target's arguments for as long as it lives
        threading.Thread(target=self._serve, args=([work],), name="pgsched-handler", daemon=True).start()

    def _wake_one(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self._wake.put(None)

    def _serve(self, first: list[Work]) -> None:
        work: Work | None = first.pop()
        while work is not None:
            work()
            work = None  # what it holds may be much, and the next one may be long in coming
            with self._lock:
                if self._waiting:
                    work = self._waiting.popleft()
                    continue
                if self._closed or self._idle >= self._size:
                    return
                self._idle += 1
            while work is None:
                self._wake.get()
                with self._lock:
                    self._is_waking = False
                    if self._waiting:
                        work = self._waiting.popleft()
                        self._idle -= 1
                        if self._waiting:
                            self._wake_one()
                    elif self._closed:
                        self._idle -= 1
                        return


class _Results:
    """Results of calls, on their way to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ready: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_woken = False

    def add(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        """Hand over a result, from any thread."""
        self._ready.append((future, value, error))
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_woken = False  # first: what is added from now on wakes the loop again
        while self._ready:
            future, value, error = self._ready.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(_acceptable(error))


async def apart(call: Callable[[], T]) -> T:
    """What a call returns, from a thread of its own: handlers may sit in all those of `asyncio.to_thread`."""
    return await Threads[T](0).submit(call)


def _acceptable(error: BaseException) -> BaseException:
    """The error in a form that a future takes, and that does not end the loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    raised = RuntimeError(f"a call in a thread raised {type(error).__name__}")
    raised.__cause__ = error
    return raised
