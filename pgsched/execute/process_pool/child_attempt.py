"""One attempt at a time in a child process: its arguments, its place (main thread or loop), its limit and its stop.

The rule: a stop is soft here. A handler with a Run finds `cancelled` set; an async one is cancelled; any other one gets
CancelledError at the line it has come to. What does not end by that is killed by the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import resource
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from pgsched import log
from pgsched.app.control import Own
from pgsched.app.hooks import Hooks
from pgsched.app.run import Run
from pgsched.core.model import Outcome
from pgsched.errors import TaskError
from pgsched.execute.event_loops import finish, outside
from pgsched.execute.outcomes import failed, refused, succeeded
from pgsched.execute.output.relay import Relay
from pgsched.execute.output.streams import Streams, capturing
from pgsched.execute.process_pool.protocol import FarControl, Message, outcome_message, run_of, told_run
from pgsched.execute.python.handler import Call, Handler
from pgsched.telemetry import tracing

T = TypeVar("T")
LEFT_S = 3.0
PAGE_BYTES = resource.getpagesize()
STATM = Path("/proc/self/statm")


class Stop:
    """The worker's wish to end the attempt, from the stop line's thread to where the handler runs.

    It is never taken back: a child that was told to stop runs nothing more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._act: Callable[[], object] | None = None

    def ask(self) -> None:
        """Told to stop."""
        with self._lock:
            self._asked = True
            if self._act is not None:
                self._act()

    @property
    def asked(self) -> bool:
        """Has a stop been asked for?"""
        return self._asked

    def then(self, act: Callable[[], object] | None) -> None:
        """What a stop does from now on; done at once when it came before the attempt."""
        with self._lock:
            self._act = act
            if self._asked and act is not None:
                act()


class Limit:
    """The address space of this process, while a handler with a limit runs: what the idle child had, and so much more.

    An absolute limit would have to be above what imports map, which nobody can tell (numpy alone reserves gigabytes).
    """

    def __init__(self, base_bytes: int, memory_mb: int | None) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        self._bytes = None if memory_mb is None else base_bytes + (memory_mb << 20)

    def __enter__(self) -> None:
        if self._bytes is not None:
            hard = self._before[1]
            soft = self._bytes if hard == resource.RLIM_INFINITY else min(self._bytes, hard)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def __exit__(self, *_: object) -> None:
        if self._bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, self._before)


class Attempts:
    """Runs attempts. One event loop serves all async handlers of this process, so that what they keep stays usable."""

    def __init__(self, tasks: Mapping[str, Handler], stop: Stop, relay: Relay, hooks: Hooks) -> None:
        self._tasks = tasks
        self._hooks = hooks
        self._stop = stop
        self._relay = relay
        self._streams = Streams()
        self._runner = asyncio.Runner()
        self._main = threading.get_ident()
        self._inside = False
        self._spoilt = False  # by what a handler left, which does not end
        self._base_bytes = mapped_bytes()

    def run(self, message: Message) -> Message:
        """Run one attempt to its end. Raises nothing."""
        memory_mb = message["memory_mb"]
        try:
            outcome = self._outcome(message, Limit(self._base_bytes, memory_mb))
        except BaseException as error:  # raised while the outcome was made: a stop, or no memory for it
            outcome = failed(error)
        short = memory_mb is not None and (outcome.error or "").startswith("MemoryError")
        if short:
            outcome = replace(outcome, error=f"{outcome.error} (memory_mb={memory_mb})")
        return outcome_message(outcome, retire=short or self._spoilt)

    def start(self) -> None:
        """Call the app's on_start hooks. Raises PgschedError."""
        self._finish(self._hooks.start([]))

    def close(self) -> None:
        """The process ends in good order."""
        self._finish(self._hooks.shutdown())
        self._runner.close()

    def _finish(self, work: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> T:
        return finish(self._runner.get_loop().create_task(work, context=context))

    def _outcome(self, message: Message, limit: Limit) -> Outcome:
        handler = self._tasks.get(message["task"])
        if handler is None:
            name = message["task"]
            return refused(f"task: the app, imported in a child process, has no task named {name!r}", retry=True)
        record = self._relay.begin()
        control = FarControl(message["own"], lambda: self._stop.asked, self._relay.answer)
        with_run = handler.takes_run or self._hooks.per_run
        run = run_of(message, record, Own(control, control.dsn)) if with_run else None
        try:
            call = handler.prepare(message["args"], run)
        except TaskError as error:
            # Retried: while a new release is rolled out, another worker may know the new parameter.
            return refused(str(error), retry=True)
        if handler.capture:
            self._streams.install()
        try:
            with capturing(record) if handler.capture else contextlib.nullcontext(), told_to_logs(message):
                context = contextvars.copy_context()
            if handler.is_async or self._hooks.around_all:
                return self._finish(self._on_loop(call, run, limit, handler), context)
            return context.run(self._in_main_thread, call, run, limit, handler)
        finally:
            control.close()
            self._relay.end(record)

    def _in_main_thread(self, call: Call, run: Run | None, limit: Limit, handler: Handler) -> Outcome:
        interrupted = not handler.takes_run
        try:
            self._stop.then(self._stopping(run, interrupted=interrupted))
            with limit:
                value = self._interruptible(self._plain(call, run), interrupted=interrupted)
        except BaseException as error:
            self._inside = False
            self._stop.then(None)
            if run is not None and self._tells():
                self._finish(self._hooks.tell(run, error, at_once))
            return failed(error, handler.no_retry)
        finally:
            self._stop.then(None)
        return succeeded(value)

    def _interruptible(self, call: Call, *, interrupted: bool) -> Any:
        """A plain handler's call; where it cannot look at its Run, a stop gets it out of whatever it is at."""
        # Set anew each time: the handler before may have changed both.
        signal.signal(signal.SIGTERM, self._interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            self._inside = interrupted
            if interrupted and self._stop.asked:
                self._signal()
            return call()
        finally:
            self._inside = False

    def _stopping(self, run: Run | None, *, interrupted: bool) -> Callable[[], None]:
        def stop() -> None:
            if run is not None:
                run.cancelled.set()
            if interrupted:
                self._signal()

        return stop

    def _tells(self) -> bool:
        """Is somebody to be told of a failure here? Of an attempt that was stopped only the worker knows why."""
        return bool(self._hooks.on_error) and not self._stop.asked

    def _plain(self, call: Call, run: Run | None) -> Call:
        return call if run is None else self._hooks.call_of_plain(run, call)

    def _signal(self) -> None:
        # A real signal, because nothing else wakes time.sleep() and other waits of the main thread.
        signal.pthread_kill(self._main, signal.SIGTERM)

    def _interrupt(self, *_: object) -> None:
        if self._inside and self._stop.asked:  # otherwise it came from somebody else, who may tell the worker
            self._inside = False
            raise asyncio.CancelledError("the attempt was stopped")

    async def _on_loop(self, call: Call, run: Run | None, limit: Limit, handler: Handler) -> Outcome:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        interrupted = not (handler.is_async or handler.takes_run)
        tell = self._stopping(run, interrupted=interrupted)
        if not handler.is_async:
            call = inline(partial(self._interruptible, self._plain(call, run), interrupted=interrupted))
        if run is not None:
            call = self._hooks.call_of_all(run, call)

        def stop() -> None:
            tell()
            loop.call_soon_threadsafe(task.cancel)

        self._stop.then(stop)
        try:
            return await self._awaited(call, run, limit, handler)
        finally:
            self._stop.then(None)
            self._spoilt = not await _end_others(task)

    async def _awaited(self, call: Call, run: Run | None, limit: Limit, handler: Handler) -> Outcome:
        # SystemExit and KeyboardInterrupt must not leave this coroutine: a task that raises them ends the whole loop.
        try:
            with limit:
                value = await cast(Awaitable[Any], call())
        except BaseException as error:
            if run is not None and self._tells():
                await self._hooks.tell(run, error, at_once)
            return failed(error, handler.no_retry)
        return succeeded(value)


@contextlib.contextmanager
def told_to_logs(message: Message) -> Iterator[None]:
    """Which attempt it is, and of which trace."""
    token = log.ATTEMPT.set(told_run(message))
    try:
        with tracing.joined(message["trace"]):
            yield
    finally:
        log.ATTEMPT.reset(token)


def inline(call: Call) -> Call:
    """A plain call as an async one, made on the loop itself: nothing else runs in this process."""

    async def made() -> Any:
        with outside():
            return call()

    return made


async def at_once(call: Call) -> Any:
    """A plain hook's call."""
    with outside():
        return call()


async def _end_others(task: asyncio.Task[Any]) -> bool:
    """End what the handler left on the loop: it would go on in the middle of a later attempt. False: it stays."""
    others = asyncio.all_tasks() - {task}
    for other in others:
        other.cancel()
    if others:
        await asyncio.wait(others, timeout=LEFT_S)
    return asyncio.all_tasks() == {task}


def mapped_bytes() -> int:
    """The address space that this process has; 0 where nobody tells."""
    try:
        return int(STATM.read_text().split()[0]) * PAGE_BYTES
    except OSError:
        return 0
