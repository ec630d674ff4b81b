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
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")
Work = Callable[[], None]


class Threads(Generic[T]):
    """Runs calls, each in a thread of its own while it lasts. What one raises is raised to whoever awaits it."""

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
            try:
                deliver = partial(_deliver, future, context.run(call))
            except BaseException as error:
                deliver = partial(_deliver_error, future, error)
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
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
            work = None  # what it holds may be much, and the next one may be long in coming
            with self._lock:
                if self._closed or self._idle >= self._size:
                    return
                self._idle += 1
            work = self._work.get()


class Signal(threading.Event):
    """A `threading.Event` that makes the real one when somebody sets it or waits for it.

    Each attempt has one, and hardly any is ever waited for: making one costs as much as a short handler.
    """

    def __init__(self) -> None:
        pass

    def _made(self) -> threading.Event | None:
        return self.__dict__.get("event")

    def _make(self) -> threading.Event:
        # setdefault is one step: of threads that are here at once, one makes it, and no lock is to be held over a fork
        return self._made() or self.__dict__.setdefault("event", threading.Event())

    def is_set(self) -> bool:
        event = self._made()
        return event is not None and event.is_set()

    def set(self) -> None:
        self._make().set()

    def clear(self) -> None:
        event = self._made()
        if event is not None:
            event.clear()

    def wait(self, timeout: float | None = None) -> bool:
        return self._make().wait(timeout)

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle a signal: a copy would never be set")  # as an Event, for its lock

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self.is_set() else 'unset'}>"


async def apart(call: Callable[[], T]) -> T:
    """What a call returns, from a thread of its own: handlers may sit in all those of `asyncio.to_thread`."""
    return await Threads[T](0).submit(call)


def _deliver(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _deliver_error(future: asyncio.Future[T], error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration) or not isinstance(error, Exception):  # no future takes it, or it ends the loop
        raised = RuntimeError(f"a call in a thread raised {type(error).__name__}")
        raised.__cause__ = error
        error = raised
    future.set_exception(error)
