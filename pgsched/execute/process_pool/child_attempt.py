"""The attempts of a child process: runs one handler at a time, with a memory limit, and stops it on request.

Invariant: a stop in this process is soft; the worker kills the process where the soft stop does not work.

- A handler with a Run finds `run.cancelled` set.
- An async handler is cancelled.
- Any other handler gets CancelledError at the line that it executes.
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
from pgsched.app.control import AttemptState
from pgsched.app.hooks import Hooks
from pgsched.app.run import Run
from pgsched.core.model import Outcome
from pgsched.errors import TaskError
from pgsched.execute.event_loops import outside_loop, run_until_done
from pgsched.execute.outcomes import outcome_of_error, outcome_of_value, refusal_outcome
from pgsched.execute.output.record import Record
from pgsched.execute.output.relay import Relay
from pgsched.execute.output.streams import Streams, capturing
from pgsched.execute.process_pool.protocol import Message, RemoteControl, log_attempt_of, outcome_message, run_of
from pgsched.execute.python.handler import Call, Handler
from pgsched.telemetry import tracing

T = TypeVar("T")
LEFT_S = 3.0
PAGE_BYTES = resource.getpagesize()
STATM = Path("/proc/self/statm")


class Stop:
    """The worker's request to end the attempt, passed from the stop line's thread to the handler.

    A request is never withdrawn: a child that was asked to stop runs no other attempt.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._act: Callable[[], object] | None = None

    def ask(self) -> None:
        """Request a stop."""
        with self._lock:
            self._asked = True
            if self._act is not None:
                self._act()

    @property
    def asked(self) -> bool:
        """Whether a stop was requested."""
        return self._asked

    def then(self, act: Callable[[], object] | None) -> None:
        """Set what a stop does from now on; call it at once where the stop was requested before."""
        with self._lock:
            self._act = act
            if self._asked and act is not None:
                act()


class Limit:
    """A limit on the address space of this process while a handler runs: the idle child's size plus `memory_mb`.

    An absolute limit would have to exceed what imports map, which cannot be known (numpy alone reserves gigabytes).
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


class ChildAttempts:
    """The attempts of one child process.

    One event loop serves all async handlers of the process, so that objects they keep stay usable.
    """

    def __init__(self, tasks: Mapping[str, Handler], stop: Stop, relay: Relay, hooks: Hooks) -> None:
        self._tasks = tasks
        self._hooks = hooks
        self._stop = stop
        self._relay = relay
        self._streams = Streams()
        self._runner = asyncio.Runner()
        self._main = threading.get_ident()
        self._interruptible_now = False
        self._has_leftover_tasks = False  # tasks that a handler left on the loop do not end
        self._base_bytes = mapped_bytes()

    def run(self, message: Message) -> Message:
        """Run one attempt to its end. Raises nothing."""
        memory_mb = message["memory_mb"]
        try:
            outcome = self._outcome(message, Limit(self._base_bytes, memory_mb))
        except BaseException as error:  # raised while the outcome was made: a stop, or too little memory
            outcome = outcome_of_error(error)
        short = memory_mb is not None and (outcome.error or "").startswith("MemoryError")
        if short:
            outcome = replace(outcome, error=f"{outcome.error} (memory_mb={memory_mb})")
        return outcome_message(outcome, retire=short or self._has_leftover_tasks)

    def start(self) -> None:
        """Call the app's on_start hooks. Raises PgschedError where a hook fails."""
        self._finish(self._hooks.start([]))

    def close(self) -> None:
        """Call the app's on_shutdown hooks and close the event loop, at a regular end of the process."""
        self._finish(self._hooks.shutdown())
        self._runner.close()

    def _finish(self, work: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> T:
        return run_until_done(self._runner.get_loop().create_task(work, context=context))

    def _outcome(self, message: Message, limit: Limit) -> Outcome:
        handler = self._tasks.get(message["task"])
        if handler is None:
            name = message["task"]
            return refusal_outcome(
                f"task: the app, imported in a child process, has no task named {name!r}", retry=True
            )
        record = self._relay.begin()
        control = RemoteControl(message["own"], lambda: self._stop.asked, self._relay.answer)
        try:
            return self._attempt(handler, message, record, control, limit)
        finally:
            control.close()
            self._relay.end(record)

    def _attempt(
        self, handler: Handler, message: Message, record: Record, control: RemoteControl, limit: Limit
    ) -> Outcome:
        attempt = log_attempt_of(message).attempt
        with_run = handler.takes_run or self._hooks.per_run
        run = run_of(message, record, AttemptState(control, control.dsn)) if with_run else None
        try:
            call = handler.prepare(message["args"], run)
        except TaskError as error:
            # Retried: while a new release is rolled out, another worker may know the new parameter.
            return refusal_outcome(str(error), retry=True)
        if handler.capture:
            self._streams.install()
        with capturing(record) if handler.capture else contextlib.nullcontext(), attempt_context(message):
            context = contextvars.copy_context()
        if handler.is_async or self._hooks.around_all:
            return self._finish(self._on_loop(call, run, limit, handler, attempt), context)
        return context.run(self._in_main_thread, call, run, limit, handler, attempt)

    def _in_main_thread(self, call: Call, run: Run | None, limit: Limit, handler: Handler, attempt: int) -> Outcome:
        interrupted = not handler.takes_run
        try:
            self._stop.then(self._stopping(run, interrupted=interrupted))
            with limit:
                value = self._interruptible(self._plain(call, run), interrupted=interrupted)
        except BaseException as error:
            self._interruptible_now = False
            self._stop.then(None)
            if run is not None and self._tells():
                self._finish(self._hooks.tell(run, error, call_plain_hook))
            return outcome_of_error(error, handler.retry_rule, attempt)
        finally:
            self._stop.then(None)
        return outcome_of_value(value)

    def _interruptible(self, call: Call, *, interrupted: bool) -> Any:
        """Call a plain handler; where `interrupted`, a stop raises CancelledError at the line it executes."""
        # Set again for each attempt: the handler before may have changed both.
        signal.signal(signal.SIGTERM, self._interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            self._interruptible_now = interrupted
            if interrupted and self._stop.asked:
                self._signal()
            return call()
        finally:
            self._interruptible_now = False

    def _stopping(self, run: Run | None, *, interrupted: bool) -> Callable[[], None]:
        def stop() -> None:
            if run is not None:
                run.cancelled.set()
            if interrupted:
                self._signal()

        return stop

    def _tells(self) -> bool:
        """Check whether to call the on_error hooks here: only the worker knows why an attempt was stopped."""
        return bool(self._hooks.on_error) and not self._stop.asked

    def _plain(self, call: Call, run: Run | None) -> Call:
        return call if run is None else self._hooks.call_of_plain(run, call)

    def _signal(self) -> None:
        # A real signal, because only a signal wakes time.sleep() and other waits of the main thread.
        signal.pthread_kill(self._main, signal.SIGTERM)

    def _interrupt(self, *_: object) -> None:
        # without a request to stop, another process sent the signal: it should signal the worker
        if self._interruptible_now and self._stop.asked:
            self._interruptible_now = False
            raise asyncio.CancelledError("the attempt was stopped")

    async def _on_loop(self, call: Call, run: Run | None, limit: Limit, handler: Handler, attempt: int) -> Outcome:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        interrupted = not (handler.is_async or handler.takes_run)
        tell = self._stopping(run, interrupted=interrupted)
        if not handler.is_async:
            call = as_async_call(partial(self._interruptible, self._plain(call, run), interrupted=interrupted))
        if run is not None:
            call = self._hooks.call_of_all(run, call)

        def stop() -> None:
            tell()
            loop.call_soon_threadsafe(task.cancel)

        self._stop.then(stop)
        try:
            return await self._awaited(call, run, limit, handler, attempt)
        finally:
            self._stop.then(None)
            self._has_leftover_tasks = not await _end_others(task)

    async def _awaited(self, call: Call, run: Run | None, limit: Limit, handler: Handler, attempt: int) -> Outcome:
        # SystemExit and KeyboardInterrupt must not leave this coroutine: a task that raises them ends the whole loop.
        try:
            with limit:
                value = await cast(Awaitable[Any], call())
        except BaseException as error:
            if run is not None and self._tells():
                await self._hooks.tell(run, error, call_plain_hook)
            return outcome_of_error(error, handler.retry_rule, attempt)
        return outcome_of_value(value)


@contextlib.contextmanager
def attempt_context(message: Message) -> Iterator[None]:
    """Give log lines in this block the attempt, and spans its trace."""
    token = log.ATTEMPT.set(log_attempt_of(message))
    try:
        with tracing.join_trace(message["trace"]):
            yield
    finally:
        log.ATTEMPT.reset(token)


def as_async_call(call: Call) -> Call:
    """Return a plain call as an async one that runs on the event loop itself: nothing else runs in this process."""

    async def async_call() -> Any:
        with outside_loop():
            return call()

    return async_call


async def call_plain_hook(call: Call) -> Any:
    """Call a plain hook on the event loop's thread."""
    with outside_loop():
        return call()


async def _end_others(task: asyncio.Task[Any]) -> bool:
    """Cancel the tasks that the handler left on the loop; return False where one does not end.

    A task that stayed would go on in the middle of a later attempt.
    """
    others = asyncio.all_tasks() - {task}
    for other in others:
        other.cancel()
    if others:
        await asyncio.wait(others, timeout=LEFT_S)
    return asyncio.all_tasks() == {task}


def mapped_bytes() -> int:
    """Return the size of this process's address space; 0 where the system has no /proc."""
    try:
        return int(STATM.read_text().split()[0]) * PAGE_BYTES
    except OSError:
        return 0
