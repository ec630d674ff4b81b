"""The asyncio tasks that make attempts.

Invariant: each begins in the same context, and tells whether it is as clean as it was: what a handler has changed in
the context of its task, or a cancellation that is still to come, must not reach the next attempt.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any


class AttemptTask(asyncio.Task[None]):
    """A task that says whether somebody has cancelled it, and not only `cancelling`, which a handler may take back: the
    cancellation may come all the same when the task waits next (before Python 3.13)."""

    was_cancelled = False

    def cancel(self, msg: Any = None) -> bool:
        self.was_cancelled = True
        return super().cancel(msg)


class AttemptTasks:
    """The tasks of one worker. `on_bug(error)` is told what one of them has raised."""

    def __init__(self, on_bug: Callable[[BaseException], None]) -> None:
        self.all: set[AttemptTask] = set()
        self._on_bug = on_bug
        self._context = contextvars.copy_context()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start one."""
        task = AttemptTask(work, loop=asyncio.get_running_loop(), context=self._context.copy())
        self.all.add(task)
        task.add_done_callback(self._ended, context=self._context)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.all.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_bug(error)


def current() -> AttemptTask:
    """The task that this is called in."""
    task = asyncio.current_task()
    assert isinstance(task, AttemptTask)
    return task


def is_changed(clean: contextvars.Context) -> bool:
    """Does the current context differ from this one? Its values are compared, and their comparison may fail."""
    try:
        return contextvars.copy_context() != clean
    except Exception:
        return True
