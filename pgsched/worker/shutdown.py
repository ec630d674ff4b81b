"""The end of a worker's process: `asyncio.run` with a time limit on what handlers left behind.

Invariant: no abandoned handler delays the end of the process beyond the limit.

`asyncio.run` cancels the remaining tasks and waits for them, then for the threads of `asyncio.to_thread`, however long
they take. Python itself also waits for those threads. Nothing can make them end, so the process ends itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

from pgsched import log
from pgsched.errors import BUG, PgschedError
from pgsched.execute.event_loops import run_until_done

logger = log.get("process")
WITHIN_S = 10.0


def run_loop(work: Callable[[], Coroutine[Any, Any, None]], within_s: float | None = WITHIN_S) -> None:
    """Run the worker like `asyncio.run`, with two differences.

    - The process ends `within_s` seconds after the work where the event loop is not closed by then; None: never.
    - A SystemExit in a task that a handler started does not end the loop: the code that awaits the task gets the error.
    """
    timers: list[threading.Timer] = []
    ours: list[asyncio.Task[None]] = []

    async def main() -> None:
        ours.append(cast("asyncio.Task[None]", asyncio.current_task()))
        error: BaseException | None = None
        try:
            await work()
        except BaseException as raised:
            error = raised
            raise
        finally:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if within_s is not None:
                timer = threading.Timer(within_s, exit_process, [others, error])
                timer.daemon = True
                timer.start()
                timers.append(timer)

    try:
        with asyncio.Runner() as runner:
            try:
                runner.run(main())
            except SystemExit:
                if not ours:
                    raise
                run_until_done(ours[0], (SystemExit,))
    finally:
        for timer in timers:
            timer.cancel()


def exit_process(others: set[asyncio.Task[Any]], error: BaseException | None) -> None:
    """End the process at once, with the exit code that the command would have had; `others`: remaining tasks."""
    code = exit_code(error)
    try:
        # asyncio waits for the threads only after all tasks, and ends the idle ones then
        left = sum(not task.done() for task in others) or len(threads_of_loop())
        why = {} if error is None else {"error": str(error)}
        logger.warning("ending at once: what handlers left behind does not end", handlers=left, exit_code=code, **why)
    finally:
        os._exit(code)


def threads_of_loop() -> list[threading.Thread]:
    """Return the threads of `asyncio.to_thread`."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")]


def exit_code(error: BaseException | None) -> int:
    """Return the command's exit code after this error, 0 without one."""
    if error is None:
        return 0
    return error.exit_code if isinstance(error, PgschedError) else BUG
