"""The rule: a handler's task ends no loop that others' handlers run on.

asyncio lets a SystemExit of any task, such as one of a handler's TaskGroup, out of `run_forever`, although whoever
awaits that task is told of it as well. The loop itself is as it was, and can go on.
"""

from __future__ import annotations

import asyncio
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
