"""Hooks of an app: functions that are called at the start and end of a process, around handlers, and after failures.

Invariant: without hooks a run pays nothing for them, and a hook that fails is always logged or raised.

An async middleware goes around every handler, on the event loop. A plain middleware goes around plain handlers only, in
the thread that runs them, where it can reach what belongs to that thread. The first one registered is the outermost.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from pgsched import log
from pgsched.app.run import Run
from pgsched.app.signals import Snooze, effective_error, format_error
from pgsched.errors import PgschedError, TaskError
from pgsched.threads import Threads

logger = log.get("hooks")
SHUTDOWN_S = 10.0
ON_ERROR_S = 30.0
Hook = TypeVar("Hook", bound=Callable[..., Any])
Call = Callable[[], Any]
Plainly = Callable[[Call], Awaitable[Any]]


class Hooks:
    """The hooks of one app, by event.

    `around_all`: async middleware; `around_plain`: plain middleware.
    `per_run`: some hook is called for runs.
    `job_listeners`: from a DSN, each makes a JobListener of worker/observers/job_events.py.
    `in_tests`: where the test kit runs handlers, if a framework wants another place than `OwnThreads`.
    """

    def __init__(self) -> None:
        self.on_start: list[Callable[..., Any]] = []
        self.on_shutdown: list[Callable[..., Any]] = []
        self.on_error: list[Callable[..., Any]] = []
        self.around_all: list[Callable[..., Any]] = []
        self.around_plain: list[Callable[..., Any]] = []
        self.per_run = False
        self.job_listeners: list[Callable[[str], Any]] = []
        self.in_tests: Any = None

    def add(self, event: str, hook: Hook) -> Hook:
        """Register a hook, and return it. Raises TaskError if the hook cannot be called for this event."""
        check_hook(event, hook)
        if event == "middleware":
            (self.around_all if inspect.iscoroutinefunction(hook) else self.around_plain).append(hook)
        else:
            getattr(self, event).append(hook)
        self.per_run = bool(self.on_error or self.around_all or self.around_plain)
        return hook

    # ---- hooks of a process

    async def start(self, async_tasks: list[str]) -> None:
        """Call the on_start hooks in order. Raises PgschedError, naming the hook, if one fails."""
        if self.around_plain and async_tasks:
            logger.info("plain middleware does not go around async handlers", tasks=async_tasks[:20],
                        middleware=[name_of(hook) for hook in self.around_plain])  # fmt: skip
        for hook in self.on_start:
            try:
                await await_if_needed(hook())
            except Exception as error:
                raise PgschedError(f"on_start hook {name_of(hook)} failed: {format_error(error)}") from error

    async def shutdown(self, within_s: float = SHUTDOWN_S) -> None:
        """Call the on_shutdown hooks, the last registered first.

        A hook that fails or takes longer than `within_s` seconds is logged, and the others are called all the same.
        Plain hooks run in a thread that cannot delay the exit.
        """
        if not self.on_shutdown:
            return
        threads: Threads[Any] = Threads(1)
        for hook in reversed(self.on_shutdown):
            await self._guarded("on_shutdown", hook, within_s, lambda call: in_thread(threads, call))
        threads.close()

    # ---- hooks of a run

    def call_of_plain(self, run: Run, call: Call) -> Call:
        """Return a plain handler's call with the plain middleware around it."""
        for hook in reversed(self.around_plain):
            call = partial(hook, run, call)
        return call

    def call_of_all(self, run: Run, call: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """Return a handler's awaitable call with the async middleware around it."""
        for hook in reversed(self.around_all):
            call = partial(hook, run, call)
        return call

    async def tell(self, run: Run, error: BaseException, plainly: Plainly) -> None:
        """Call the on_error hooks for an attempt that failed; a Snooze is not a failure. Raises nothing.

        `plainly` calls a plain hook where it does not block the event loop.
        """
        if isinstance(effective_error(error), Snooze):
            return
        for hook in self.on_error:
            await self._guarded("on_error", partial(hook, run, error), ON_ERROR_S, plainly)

    async def _guarded(self, event: str, hook: Callable[[], Any], within_s: float, plainly: Plainly) -> None:
        name = name_of(hook)
        try:
            async with asyncio.timeout(within_s):
                await (hook() if inspect.iscoroutinefunction(hook) else plainly(hook))
        except TimeoutError:
            logger.error(f"{event} hook has not ended in time", hook=name, seconds=within_s)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the task itself is being cancelled, not the hook
            logger.error(f"{event} hook failed", hook=name, error=format_error(error), exc_info=error)


def check_hook(event: str, hook: Any) -> None:
    """Raise TaskError if the hook cannot be called for this event."""
    wants = {"middleware": ("run", "call_next"), "on_error": ("run", "error")}.get(event, ())
    if not callable(hook):
        raise TaskError(f"{event}: expected a function, got {type(hook).__name__}")
    if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
        raise TaskError(f"{event}: {name_of(hook)} is a generator; write a function that calls call_next() itself")
    try:
        inspect.signature(hook).bind(*wants)
    except TypeError:
        raise TaskError(f"{event}: {name_of(hook)} must take ({', '.join(wants)})") from None


def name_of(hook: Any) -> str:
    """Return the name of a hook, for messages."""
    hook = hook.func if isinstance(hook, partial) else hook
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)


async def await_if_needed(value: Any) -> Any:
    """Return the value, or await it and return its result."""
    return await value if inspect.isawaitable(value) else value


async def in_thread(threads: Threads[Any], call: Call) -> Any:
    """Make a plain call in a thread while the event loop goes on; return or raise what it does."""
    value, error = await threads.submit(lambda: call_catching(call))
    if error is not None:
        raise error
    return value


def call_catching(call: Call) -> tuple[Any, BaseException | None]:
    """Make a call; return its result and None, or None and the error."""
    try:
        return call(), None
    except BaseException as error:
        return None, error
