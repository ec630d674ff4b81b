"""The rule: a process that a handler forks, as multiprocessing does, hears its signals for itself.

It inherits what this one has set up to hear them: it would not end by a SIGTERM, and asyncio's descriptor would have
this one, which shares it, take that for its own, so that a worker stops because a handler ended what it had started.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

_heard: set[int] = set()


def hear_alone(numbers: Iterable[int]) -> None:
    """From now on what is forked does not inherit what this process has set up for these signals."""
    _heard.update(numbers)


def forget() -> None:
    """It may inherit everything again."""
    _heard.clear()


def _as_usual() -> None:
    """In a child: as they are in a new process."""
    if _heard:
        signal.set_wakeup_fd(-1)
    for number in _heard:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _heard.clear()


os.register_at_fork(after_in_child=_as_usual)
