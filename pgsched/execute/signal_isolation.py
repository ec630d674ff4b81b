"""Signal handling in processes that a handler forks: they get the default handlers back.

Invariant: a process that a handler forks, as multiprocessing does, handles its own signals.

Without this module the forked process inherits the worker's signal handlers and the wake-up descriptor of asyncio. It
would not end by SIGTERM. It also shares the descriptor with the worker, so its SIGTERM would stop the worker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

_heard: set[int] = set()


def reset_in_children(numbers: Iterable[int]) -> None:
    """Reset these signals in every process that is forked from now on."""
    _heard.update(numbers)


def clear_reset_signals() -> None:
    """Let forked processes inherit all signal handlers again."""
    _heard.clear()


def _reset_signal_handlers() -> None:
    """Reset the recorded signals in a forked child, as in a new process."""
    if _heard:
        signal.set_wakeup_fd(-1)
    for number in _heard:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _heard.clear()


os.register_at_fork(after_in_child=_reset_signal_handlers)
