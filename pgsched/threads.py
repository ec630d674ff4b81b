"""Threads that run blocking calls and can be left behind.

Invariant: a stuck thread does not delay the end of the process. A thread cannot be killed. So these threads are
daemons, unlike those of concurrent.futures.

The worker bounds how many calls run at once. This module only keeps up to `size` idle threads for the next calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")
Work = Callable[[], None]


class Threads(Generic[T]):
    """A set of threads in which calls run, each in a thread of its own while it lasts.

    The error of a call is raised where its future is awaited.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start the call now; return its future, which belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                deliver = partial(_deliver, future, context.run(call))
            except BaseException as error:
                deliver = partial(_deliver_error, future, error)
            with contextlib.suppress(RuntimeError):  # the loop was closed, so the result is not awaited any more
                loop.call_soon_threadsafe(deliver)

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
        # not the work itself: a thread keeps its target's arguments for as long as it lives
        threading.Thread(target=self._serve, args=([work],), name="pgsched-handler", daemon=True).start()

    def _serve(self, first: list[Work]) -> None:
        work: Work | None = first.pop()
        while work is not None:
            work()
            work = None  # free its memory now: the next call may come much later
            with self._lock:
                if self._closed or self._idle >= self._size:
                    return
                self._idle += 1
            work = self._work.get()


class LazyEvent(threading.Event):
    """A `threading.Event` that makes the real event when it is first set or waited for.

    Each attempt has one, and hardly any is ever waited for. Making the real event costs as much as a short handler.
    """

    def __init__(self) -> None:
        pass

    def _existing_event(self) -> threading.Event | None:
        return self.__dict__.get("event")

    def _make_event(self) -> threading.Event:
        # setdefault is atomic: only one of several threads makes the event, and no lock can be held over a fork
        return self._existing_event() or self.__dict__.setdefault("event", threading.Event())

    def is_set(self) -> bool:
        """Return whether the event is set."""
        event = self._existing_event()
        return event is not None and event.is_set()

    def set(self) -> None:
        """Set the event."""
        self._make_event().set()

    def clear(self) -> None:
        """Clear the event."""
        event = self._existing_event()
        if event is not None:
            event.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, or for `timeout` seconds; return whether it is set."""
        return self._make_event().wait(timeout)

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle a signal: a copy would never be set")  # as an Event, for its lock

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self.is_set() else 'unset'}>"


async def run_in_thread(call: Callable[[], T]) -> T:
    """Return the result of a call that runs in a new thread: handlers may occupy all those of `asyncio.to_thread`."""
    return await Threads[T](0).submit(call)


def _deliver(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _deliver_error(future: asyncio.Future[T], error: BaseException) -> None:
    if future.done():
        return
    # a future refuses StopIteration, and an error that is no Exception would end the loop
    if isinstance(error, StopIteration) or not isinstance(error, Exception):
        raised = RuntimeError(f"a call in a thread raised {type(error).__name__}")
        raised.__cause__ = error
        error = raised
    future.set_exception(error)
