"""A worker inside another program: on the program's event loop, with a leader candidate in a thread.

Invariant: it leaves its process as it is: signal handlers, logging, garbage collection and environment.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

from pgsched.app.base import AppBase
from pgsched.config import Settings
from pgsched.errors import PgschedError
from pgsched.leader.election import Leader
from pgsched.threads import run_in_thread
from pgsched.worker.process import make_worker, prepare, process_name, refuse_sql_rights, trace
from pgsched.worker.supervision.supervisor_link import READY
from pgsched.worker.together import work_together
from pgsched.worker.worker import Worker

_numbers = itertools.count(1)


def next_name() -> str:
    """Return a name for one more worker of this process: host:pid, then host:pid/2 and so on."""
    number = next(_numbers)
    return process_name() if number == 1 else f"{process_name()}/{number}"


async def serve(settings: Settings, app: AppBase, on_ready: Callable[[Worker], object]) -> None:
    """Run a worker on this event loop until it is stopped; call `on_ready` as soon as it takes runs.

    Raises PgschedError where it cannot start, or cannot go on.
    """
    await run_in_thread(partial(check, settings))
    async with hooks_of(app):
        name, loop = next_name(), asyncio.get_running_loop()
        worker = make_worker(settings, app, declares=True, name=name)
        worker.ending.inside = True
        worker.ending.report_state = lambda word: on_ready(worker) if word == READY else None
        traced = trace(settings, worker)
        leader = Leader(
            settings.dsn,
            settings.leader,
            name,
            on_fatal=lambda error: loop.call_soon_threadsafe(worker.ending.fail, error),
        )
        try:
            await work_together([worker], leader, settings)
        finally:
            if traced is not None:
                await traced.close()


def check(settings: Settings) -> None:
    """Check the database before anything is written. Raises PgschedError."""
    prepare(settings)
    refuse_sql_rights(settings)


@dataclass(slots=True)
class HookUse:
    """How many workers of this process use an app's hooks, and whether its on_start hooks are done."""

    workers: int = 0
    started: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)


_uses: WeakKeyDictionary[AppBase, HookUse] = WeakKeyDictionary()
_lock = threading.Lock()


@asynccontextmanager
async def hooks_of(app: AppBase) -> AsyncIterator[None]:
    """Call the app's on_start hooks before its first worker in this process, its on_shutdown hooks after the last."""
    with _lock:
        use = _uses.get(app)
        if first := use is None:
            use = _uses[app] = HookUse()
        use.workers += 1
    try:
        if first:
            await start_hooks(app, use)
        else:
            await asyncio.shield(asyncio.wrap_future(use.started))  # a cancelled wait must not cancel the start
        yield
    finally:
        with _lock:
            use.workers -= 1
            if last := use.workers == 0:
                del _uses[app]
        if last and use.started.done() and use.started.exception() is None:
            await app.hooks.shutdown()


async def start_hooks(app: AppBase, use: HookUse) -> None:
    """Call the on_start hooks, and let the app's other workers go on. Raises PgschedError, for them as well."""
    try:
        await app.hooks.start([task.name for task in app.tasks.values() if task.is_async])
    except BaseException as error:
        why = error if isinstance(error, PgschedError) else PgschedError("the start of another worker was cancelled")
        use.started.set_exception(why)
        raise
    use.started.set_result(None)
