"""The asyncio tasks that make attempts.

Invariant: nothing of one attempt reaches the next attempt in the same task. Each task starts with the same context. The
code that runs attempts checks whether a handler has changed the context, and whether a cancellation is still pending.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from pgsched.app.control import IN_HANDLER


class AttemptTask(asyncio.Task[None]):
    """A task that remembers whether it was ever cancelled.

    `cancelling` is not enough: a handler may take the request back with `uncancel`. Before Python 3.13 the cancellation
    may still arrive when the task waits next.
    """

    was_cancelled = False

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the task, and remember that."""
        self.was_cancelled = True
        return super().cancel(msg)


class AttemptTasks:
    """The tasks of one worker. `on_bug(error)` is called with the error that one of them raises."""

    def __init__(self, on_bug: Callable[[BaseException], None]) -> None:
        self.all: set[AttemptTask] = set()
        self._on_bug = on_bug
        self._context = contextvars.copy_context()
        self._context.run(IN_HANDLER.set, True)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = AttemptTask(work, loop=asyncio.get_running_loop(), context=self._context.copy())
        self.all.add(task)
        task.add_done_callback(self._ended, context=self._context)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.all.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_bug(error)


def current_task() -> AttemptTask:
    """Return the current task."""
    task = asyncio.current_task()
    assert isinstance(task, AttemptTask)
    return task


def is_changed(clean: contextvars.Context) -> bool:
    """Check whether the current context differs from `clean`.

    The comparison compares values, which runs user code. Where it raises, the contexts count as different.
    """
    try:
        return contextvars.copy_context() != clean
    except Exception:
        return True
