"""The threads of a client: one that calls the functions of watches in their order, and those that callers start."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from pgsched import log
from pgsched.recipes.kazoo.exceptions import KazooTimeoutError

logger = log.get("kazoo")

Call = Callable[[], Any]


class Handler:
    """What Kazoo calls a handler: makes events, locks and threads, and calls watch functions in their order."""

    timeout_exception = KazooTimeoutError
    event_object = threading.Event
    lock_object = threading.Lock
    rlock_object = threading.RLock
    sleep_func = staticmethod(time.sleep)

    def __init__(self) -> None:
        self.forget_parent()

    def forget_parent(self) -> None:
        """Begin anew: in a new handler, and in a child process, which has no such thread."""
        self._lock = threading.RLock()
        self._calls: queue.SimpleQueue[Call | None] | None = None

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        """Call `func` in a thread of its own."""
        thread = threading.Thread(
            target=call_logged, args=(lambda: func(*args, **kwargs),), name="pgsched-kazoo-spawned", daemon=True
        )
        thread.start()
        return thread

    def dispatch(self, call: Call) -> None:
        """Let the one thread make this call, after those that were given to it before."""
        with self._lock:
            if self._calls is None:
                self._calls = queue.SimpleQueue()
                threading.Thread(
                    target=serve_calls, args=(self._calls,), name="pgsched-kazoo-watches", daemon=True
                ).start()
            self._calls.put(call)

    def stop(self) -> None:
        """Let the thread end after the calls that it has."""
        with self._lock:
            calls, self._calls = self._calls, None
        if calls is not None:
            calls.put(None)


def serve_calls(calls: queue.SimpleQueue[Call | None]) -> None:
    """Make the calls, one after the other, until there is None."""
    while (call := calls.get()) is not None:
        call_logged(call)


def call_logged(call: Call) -> None:
    """Make a call, and log the exception that it raises: nobody else would see it."""
    try:
        call()
    except Exception:
        logger.exception("a function that was called by the client has failed")
