"""The end of a worker's process. The rule: no handler that was left behind holds it up.

`asyncio.run` cancels the tasks that are left and waits for them, then for the threads of `asyncio.to_thread`, for as
long as they take; so does Python itself for those threads. Nobody can make them end: the process does.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

from pgsched import log
from pgsched.errors import BUG, PgschedError
from pgsched.execute.event_loops import finish

logger = log.get("process")
WITHIN_S = 10.0


def run(work: Callable[[], Coroutine[Any, Any, None]], within_s: float = WITHIN_S) -> None:
    """`asyncio.run`, but that the process ends so many seconds after the work if the loop is not closed by then, and
    that a task which a handler started ends nothing by a SystemExit: who awaits it is told."""
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
            timer = threading.Timer(within_s, leave, [others, error])
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
                finish(ours[0], (SystemExit,))
    finally:
        for timer in timers:
            timer.cancel()


def leave(others: set[asyncio.Task[Any]], error: BaseException | None) -> None:
    """End the process at once, with the exit code that the command would have had. `others`: tasks that were left."""
    code = exit_code(error)
    try:
        # the threads are waited for, and the idle ones ended, when all tasks have ended
        left = sum(not task.done() for task in others) or len(threads_of_loop())
        why = {} if error is None else {"error": str(error)}
        logger.warning("ending at once: what handlers left behind does not end", handlers=left, exit_code=code, **why)
    finally:
        os._exit(code)


def threads_of_loop() -> list[threading.Thread]:
    """Those of `asyncio.to_thread`."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")]


def exit_code(error: BaseException | None) -> int:
    """What the command ends with after this error."""
    if error is None:
        return 0
    return error.exit_code if isinstance(error, PgschedError) else BUG
