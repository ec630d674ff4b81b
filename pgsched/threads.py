"""Threads that run blocking calls and can be left behind.

Invariant: a stuck thread does not delay the end of the process. A thread cannot be killed. So these threads are
daemons, unlike those of concurrent.futures.

The worker bounds how many calls run at once. This module only keeps up to `size` idle threads for the next calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import os
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
Work = Callable[[], Callable[[], None]]  # makes the call and returns what delivers its result


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
        future, work = _prepare(call)
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
            deliver = work()
            work = None  # free its memory now: the next call may come much later
            with self._lock:
                kept = not self._closed and self._idle < self._size
                self._idle += kept
            deliver()  # only now: then the next call of the caller finds this thread idle
            del deliver
            if not kept:
                return
            work = self._work.get()


class NotBegun(Exception):
    """A call waited for a thread for too long. It was not made."""


class BoundedThreads:
    """Up to `size` threads, in which the calls of all event loops run. Further calls wait, and begin in their order.

    A thread ends when no call is left. A call whose caller was cancelled before it began is left out. The lock is
    re-entrant, because a signal handler may fail the waiting calls while its own thread is inside.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._begin()

    async def run(self, call: Callable[[], T], seconds_left: Callable[[], float] | None = None) -> T:
        """Return the result of a call that runs in one of the threads.

        `seconds_left`: returns for how many seconds the call may still wait for a thread; None: without limit.

        Raises NotBegun where that time is over.
        """
        if self._pid != os.getpid():  # after a fork there are no threads, and the lock may be held
            self._begin()
        future, work = _prepare(call)
        with self._lock:
            self._calls[future] = work
            if self._busy < self._size:
                self._start()
        if seconds_left is not None:
            await self._wait_to_begin(future, seconds_left)
        return await future

    def fail_waiting(self, error: Exception) -> None:
        """Give each call that has not begun a copy of this error."""
        with self._lock:
            waiting = list(self._calls)
            self._calls.clear()
        for future in waiting:
            _deliver_in(future.get_loop(), partial(_deliver_error, future, copy.copy(error)))

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._calls: OrderedDict[asyncio.Future[Any], Work] = OrderedDict()
        self._busy = 0

    async def _wait_to_begin(self, future: asyncio.Future[Any], seconds_left: Callable[[], float]) -> None:
        """Wait until the call of this future has begun or ended. Raises NotBegun where the time is over before."""
        try:
            while future in self._calls:
                left = seconds_left()
                with self._lock:
                    if left <= 0 and self._calls.pop(future, None) is not None:
                        raise NotBegun
                await asyncio.wait([future], timeout=left)
        except BaseException:
            future.cancel()
            raise

    def _start(self) -> None:
        try:
            threading.Thread(target=self._serve, name="pgsched-call", daemon=True).start()
        except RuntimeError:  # the system has no thread left: those that there are go on with the calls
            if not self._busy:
                self._calls.popitem()
                raise
        else:
            self._busy += 1

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._busy -= 1
                    return
                future, work = self._calls.popitem(last=False)
            if not future.cancelled():
                work()()
            del future, work


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


def _prepare(call: Callable[[], T]) -> tuple[asyncio.Future[T], Work]:
    """Return a future of the running loop, and what makes the call and returns what delivers its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> Callable[[], None]:
        try:
            deliver = partial(_deliver, future, context.run(call))
        except BaseException as error:
            deliver = partial(_deliver_error, future, error)
        return partial(_deliver_in, loop, deliver)

    return future, work


def _deliver_in(loop: asyncio.AbstractEventLoop, deliver: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed, so the result is not awaited any more
        loop.call_soon_threadsafe(deliver)


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
