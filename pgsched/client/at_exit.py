"""The end of a program with workers inside: they drain before Python stops.

Invariant: a worker in a thread drains when the main thread has ended, while new threads may still be started.

A function of `atexit` would run too late: from Python 3.12 on it can start no thread. So a thread waits for the end of
the main thread. Python waits for that thread in turn, because it is no daemon.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Protocol
from weakref import WeakSet

from pgsched.errors import PgschedError


class Draining(Protocol):
    """A worker in a thread of this process."""

    def close(self, *, wait: bool = True) -> None:
        """Drain; with `wait`, return at its end."""
        ...


_workers: WeakSet[Draining] = WeakSet()
_lock = threading.Lock()
_waiting: dict[int, threading.Thread] = {}  # by process: a forked one needs a thread of its own


def drain_at_exit(worker: Draining) -> None:
    """Drain this worker at the end of the program, unless it has ended by then."""
    with _lock:
        _workers.add(worker)
        if os.getpid() not in _waiting:
            thread = threading.Thread(target=_drain_after_main, name="pgsched-at-exit", daemon=False)
            _waiting[os.getpid()] = thread
            thread.start()


def _drain_after_main() -> None:
    threading.main_thread().join()
    workers = [*_workers]
    for wait in (False, True):  # all drain at the same time: none takes a run while another one drains
        for worker in workers:
            with contextlib.suppress(PgschedError):  # the parent's worker, in a forked process
                worker.close(wait=wait)
