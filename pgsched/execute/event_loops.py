"""Two helpers for asyncio's event loop: run a task to its end, and run plain code as if outside of the loop.

Invariant: the task of one handler never ends the loop that other handlers run on.

A SystemExit in any task, for example in a task of a handler's TaskGroup, makes asyncio leave `run_forever` with it. The
code that awaits the task gets the error as well. The loop itself is intact and can continue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")
ENDS_LOOP = (SystemExit, KeyboardInterrupt)


def run_until_done(task: asyncio.Task[T], tolerated: tuple[type[BaseException], ...] = ENDS_LOOP) -> T:
    """Run the task's loop until the task has ended, and return or raise its result.

    `tolerated`: exceptions of other tasks that do not end the loop.
    """
    while not task.done():
        try:
            task.get_loop().run_until_complete(task)
        except tolerated:
            continue
    return task.result()


@contextlib.contextmanager
def outside_loop() -> Iterator[None]:
    """Hide the running loop in this block: plain code may call `asyncio.run` there, as in a thread.

    The block must not await. asyncio documents the private functions used here for authors of event loops and tasks.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    asyncio._leave_task(loop, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        asyncio._enter_task(loop, task)
