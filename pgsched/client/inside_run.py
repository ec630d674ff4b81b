"""One worker inside a program, on the event loop that it is given: its state, its stops and its errors.

Invariant: an error of the worker never ends the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pgsched import log
from pgsched.app.app_location import refuse_while_importing
from pgsched.app.base import AppBase
from pgsched.config import Settings, WorkerSettings, find_alerts
from pgsched.errors import PgschedError
from pgsched.threads import run_in_thread

if TYPE_CHECKING:
    from pgsched.worker.worker import Worker

logger = log.get("worker")
OnFatal = Callable[[PgschedError], object]
FORKED = (
    "this worker belongs to process {pid}, from which this one was forked: start a worker after the fork (in the"
    " lifespan, or in post_worker_init of gunicorn)"
)


class InsideRun:
    """What the two ways to start a worker inside a program have in common.

    `error`: the error with which the worker ended by itself, None if it did not.
    """

    def __init__(self, app: AppBase, settings: WorkerSettings, on_fatal: OnFatal | None = None) -> None:
        self.error: PgschedError | None = None
        self._app = app
        self._settings = settings
        self._on_fatal = on_fatal
        self._pid: int | None = None  # the process in which it was started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._stopping: asyncio.Event | None = None  # of a worker that has nothing to do
        self._stops = 0
        self._ready = threading.Event()  # it takes runs, or has failed before
        self._over = threading.Event()

    @property
    def name(self) -> str | None:
        """The worker's name in `pgsched status`; None before it is started."""
        return None if self._worker is None else self._worker.registration.name

    @property
    def is_running(self) -> bool:
        """Whether the worker works or drains, in this process."""
        return self._pid == os.getpid() and self._ready.is_set() and not self._over.is_set()

    def stop(self) -> None:
        """Drain at the first call, hurry at the second, without waiting. May be called from any thread.

        Raises PgschedError in a process that was forked from the worker's process.
        """
        self._stop_at_least(self._stops + 1)

    def _stop_at_least(self, times: int) -> None:
        """Ask for stops until `times` were requested: the end of a block must not hurry a drain that has begun."""
        self._refuse_fork()
        self._stops = max(self._stops, times)
        if self._loop is not None and not self._over.is_set():
            with contextlib.suppress(RuntimeError):  # the loop was closed, and the worker with it
                self._loop.call_soon_threadsafe(self._stop_worker)

    def _begin(self) -> None:
        refuse_while_importing()
        self._refuse_fork()
        if self._pid is not None:
            raise PgschedError("this worker was started before: make another one by app.worker()")
        self._pid = os.getpid()

    def _refuse_fork(self) -> None:
        if self._pid is not None and self._pid != os.getpid():
            raise PgschedError(FORKED.format(pid=self._pid))

    def _is_own_exit(self, error: BaseException | None) -> bool:
        """Check whether this is the process that started the worker; a forked one that ends by an error does nothing.

        Raises PgschedError in a forked process that leaves the block without an error.
        """
        if error is None:
            self._refuse_fork()
        return self._pid == os.getpid()

    async def _serve(self, on_ready: Callable[[], object]) -> None:
        """Run the worker to its end; note the error with which it ends by itself.

        In a test whose recorder keeps the runs (pgsched.testing) there is nothing to work on: only wait for the end.
        """
        self._loop = asyncio.get_running_loop()

        def takes_runs(worker: Worker) -> None:
            self._worker = worker
            self._ready.set()
            on_ready()
            worker.ending.stop_at_least(self._stops)

        try:
            if self._app.database.records:
                return await self._wait_for_stop(on_ready)
            from pgsched.worker.hosted import serve

            dsn = await run_in_thread(self._app.database.dsn)
            await serve(Settings(dsn, self._settings, alerts=find_alerts()), self._app, takes_runs)
            if self._worker is not None and not self._stops:
                self._fail(PgschedError(f"{self._worker.ending.why}, and it has drained: start another worker"))
        except PgschedError as error:
            self._fail(error)
        except (asyncio.CancelledError, KeyboardInterrupt):
            self._fail(PgschedError("the worker was cancelled: its event loop ends"))
            raise
        except BaseException as error:  # also SystemExit, such as a hook's: it would end the program's event loop
            self._fail(PgschedError(f"worker failed: {error!r}"))
        finally:
            self._over.set()
            self._ready.set()

    async def _wait_for_stop(self, on_ready: Callable[[], object]) -> None:
        self._stopping = asyncio.Event()
        self._ready.set()
        on_ready()
        if not self._stops:
            await self._stopping.wait()

    def _not_started(self, error: BaseException) -> None:
        """Note the error with which the worker's thread or event loop could not be made."""
        self._fail(PgschedError(f"worker: cannot start: {error}"))
        self._over.set()
        self._ready.set()

    def _fail(self, error: PgschedError) -> None:
        self.error = error
        if not self._ready.is_set():  # start() and __aenter__ raise it
            return
        logger.error("the worker inside this program has ended", error=str(error))
        if self._on_fatal is not None and not self._stops:
            self._on_fatal(error)

    def _stop_worker(self) -> None:
        if self._stopping is not None:
            self._stopping.set()
        if self._worker is not None and not self._over.is_set():
            self._worker.ending.stop_at_least(self._stops)
