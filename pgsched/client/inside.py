"""A worker inside a program: started by `async with app.worker()`, `with app.worker()` or `app.worker().start()`.

Invariant: the worker ends with its block, or with the program, and never ends the program.

With `async with` it works on the program's event loop. Otherwise it has a loop of its own in a daemon thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

from pgsched.client.at_exit import drain_at_exit
from pgsched.client.inside_run import InsideRun
from pgsched.config import WorkerSettings, find_sql_dsns, find_sql_login
from pgsched.core.model import Kind
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError, PgschedError

ALLOWED = (Kind.TASK, Kind.HTTP, Kind.SQL)
LEAVE_S = 10.0
LAST_S = 30.0  # beyond grace and kill_after: the time in which outcomes are written and connections closed


class InsideWorker(InsideRun):
    """A worker inside this program. Make it by `app.worker()`."""

    _task: asyncio.Task[None] | None = None

    # ---- on the program's event loop

    async def __aenter__(self) -> Self:
        """Start the worker on this event loop; return when it takes runs. Raises PgschedError."""
        self._begin()
        loop = self._loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        # an empty context: handlers must not inherit context variables of the code that starts the worker
        task = self._task = loop.create_task(self._serve(ready.set), context=contextvars.Context())
        waiting = loop.create_task(ready.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._stop_at_least(1)
            if not ready.is_set():  # otherwise it may have runs
                task.cancel()
            await self._outlast(task)
            raise
        finally:
            waiting.cancel()
        if not ready.is_set():
            raise self.error or PgschedError("the worker has ended before it took runs")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        """Drain. A cancellation meanwhile hurries the drain; one that comes LEAVE_S later leaves it."""
        if self._is_own_exit(error) and self._task is not None:
            self._stop_at_least(1)
            await self._outlast(self._task)

    async def _outlast(self, task: asyncio.Task[None]) -> None:
        """Wait for the end of the drain. The first cancellation hurries it; one that comes LEAVE_S later leaves it.

        In between cancellations are ignored, because anyio repeats them at each turn of the loop.
        """
        cancelled: asyncio.CancelledError | None = None
        leave_at = math.inf
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as again:
                if cancelled is None:
                    cancelled, leave_at = again, time.monotonic() + LEAVE_S
                    self.stop()
                elif time.monotonic() >= leave_at:
                    leave_at = math.inf
                    task.cancel()
        if cancelled is not None:
            raise cancelled

    # ---- in a thread with a loop of its own

    def start(self) -> Self:
        """Start the worker in a thread with an event loop of its own; return when it takes runs.

        It drains at `close()`, or when the program ends. Raises PgschedError.
        """
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise InputError("worker: an event loop runs in this thread, and would be blocked: use async with")
        from pgsched.worker.shutdown import run_loop

        self._begin()
        work = partial(run_loop, partial(self._serve, self._ready.set), None)
        try:
            threading.Thread(target=self._run_in_thread, args=[work], name="pgsched-worker", daemon=True).start()
        except RuntimeError as error:  # the process may have no more threads
            self._not_started(error)
        try:
            self._ready.wait()
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        if self._over.is_set():
            raise self.error or PgschedError("the worker has ended before it took runs")
        drain_at_exit(self)
        return self

    def close(self, *, wait: bool = True) -> None:
        """Drain, and return when the worker has ended. Ctrl-C meanwhile hurries the drain, a second one leaves it.

        Returns at once where the worker was not started, or without `wait`. Raises PgschedError in a process that was
        forked from the worker's process.
        """
        if self._pid is None:
            return
        self._stop_at_least(1)
        if not wait:
            return
        try:
            self._wait_until_over()
        except KeyboardInterrupt:
            self.stop()
            self._wait_until_over()
            raise

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._is_own_exit(error):
            self.close()

    def _run_in_thread(self, work: Callable[[], None]) -> None:
        """Run the worker's event loop; `start` raises the error with which it cannot even be made."""
        try:
            work()
        except BaseException as error:
            if self._over.is_set():
                raise
            self._not_started(error)

    def _wait_until_over(self) -> None:
        """Wait until the drain is over. An event loop that is blocked is left behind after the longest drain."""
        longest = self._settings.grace_s + max(self._settings.kill_after_most_s, 10.0) + LAST_S
        if not self._over.wait(longest):
            self._fail(PgschedError("the worker did not drain: a handler blocks its event loop; its runs are retried"))


def inside_settings(allow: Iterable[str], **settings: Any) -> WorkerSettings:
    """Return the settings of a worker inside a program. Raises InputError for a kind that it may not run."""
    allowed = frozenset(allow)
    for kind in sorted(allowed - {*ALLOWED}):
        if kind in (Kind.COMMAND, Kind.SHELL):
            raise InputError(
                f"allow: {kind}: a worker inside a program runs no programs, which could read the secrets of this"
                " process: start `pgsched worker` for them",
                "allow",
            )
        raise InputError(f"allow: {kind!r} is not one of {', '.join(ALLOWED)}{did_you_mean(kind, ALLOWED)}", "allow")
    if Kind.SQL in allowed:
        settings |= {"sql_dsns": find_sql_dsns(()), "sql_login": find_sql_login(None)}
    return WorkerSettings(allow=allowed, **settings)
