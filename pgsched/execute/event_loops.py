"""The rule: a handler's task ends no loop that others' handlers run on.

asyncio lets a SystemExit of any task, such as one of a handler's TaskGroup, out of `run_forever`, although whoever
awaits that task is told of it as well. The loop itself is as it was, and can go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")
ENDS_LOOP = (SystemExit, KeyboardInterrupt)


def finish(task: asyncio.Task[T], tolerated: tuple[type[BaseException], ...] = ENDS_LOOP) -> T:
    """Run the task's loop until it has ended; returns or raises what the task does, whatever others raise."""
    while not task.done():
        try:
            task.get_loop().run_until_complete(task)
        except tolerated:
            continue
    return task.result()


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """In this block, which waits for nothing, no loop runs: plain code may call `asyncio.run`, as it may in a thread.

    These functions are asyncio's for who writes loops and tasks.
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
