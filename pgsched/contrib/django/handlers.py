"""Run Django's tasks in a worker: connections, the context, the result, and the signals of Django.

Invariant: connections of the database are closed around each attempt, as Django closes them around each request
(connections.py).

A signal that fails is logged by Django and changes nothing. `task_finished` is sent when the run has ended in the
worker: not after an attempt that is to be repeated.

Sources: "Task context" in docs.djangoproject.com/en/stable/topics/tasks/, `TaskContext` in .../ref/tasks/, the signals
of tasks in .../ref/signals/, "Persistent connections" in .../ref/databases/.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from pgsched.app.run import Run
from pgsched.app.signals import Discard, Snooze, effective_error
from pgsched.contrib.django.arguments import by_name, give_signature, unpack
from pgsched.contrib.django.connections import own_thread
from pgsched.contrib.django.results import result_of
from pgsched.contrib.django.tasks_api import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    signals,
)
from pgsched.errors import Crashed, TimedOut


class ResultNotJson(Discard, TypeError):
    """A task has returned a value that is not JSON. Its work is done, so it is not tried again."""


@dataclass(frozen=True, kw_only=True)
class RunContext(TaskContext):
    """The context of a task in a worker. `run`: pgsched's view of the attempt: `context.run.progress(3, 10)`."""

    run: Run

    @property
    def attempt(self) -> int:
        """Return the number of this attempt, from 1 on."""
        return self.run.attempt


class Attempt:
    """One attempt of a task. `result`: what the context and the signals show of it."""

    def __init__(self, app: Any, task: Any, run: Run, arguments: dict[str, Any]) -> None:
        self._app, self._task, self._run = app, task, run
        self.args, self.kwargs = unpack(task, arguments)
        self.result = self._read_result() if self._needs_row() else self._new_result()
        if task.takes_context:
            self.args = [RunContext(task_result=self.result, run=run), *self.args]
        self.sender = type(task.get_backend())

    def _needs_row(self) -> bool:
        """Check whether anybody sees the result but Django's own log lines, and whether there were attempts before."""
        watched = any(len(one.receivers) > 1 for one in (signals.task_started, signals.task_finished))
        return self._task.takes_context or self._run.attempt > 1 or watched

    def _read_result(self) -> Any:
        info = self._app.run(self._run.id).info()
        result = result_of(info, self._task, self._task.get_backend())
        now = timezone.now()
        change(result, status=TaskResultStatus.RUNNING, started_at=result.started_at or now,
               last_attempted_at=result.last_attempted_at or now)  # fmt: skip
        return result

    def _new_result(self) -> Any:
        now = timezone.now()
        return TaskResult(
            task=self._task, id=str(self._run.id), status=TaskResultStatus.RUNNING, enqueued_at=None, started_at=now,
            finished_at=None, last_attempted_at=now, args=[*self.args], kwargs={**self.kwargs},
            backend=self._task.backend, errors=[], worker_ids=[],
        )  # fmt: skip

    def succeed(self, value: Any) -> Any:
        """Return the value as JSON. Raises ResultNotJson."""
        try:
            value = normalize_json(value)
        except (TypeError, ValueError) as error:
            raise ResultNotJson(str(error)) from None
        change(self.result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
        return value

    def fail(self, error: BaseException) -> bool:
        """Add an error to the result; return whether the run has ended with it."""
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt) or not is_last(self._app, self._run, error):
            return False
        end_badly(self.result, error)
        return self.is_valid

    @property
    def is_valid(self) -> bool:
        """Whether what the function does still counts: it was not told to stop. A plain one may go on after that."""
        return not self._run.cancelled.is_set()


def check_handler(task: Any) -> Callable[..., Any]:
    """Return a function that stands for a task's handler where options are only checked."""

    async def handler_async(run: Run, /, *args: Any, **kwargs: Any) -> None: ...

    def handler(run: Run, /, *args: Any, **kwargs: Any) -> None: ...

    found: Callable[..., Any] = handler_async if inspect.iscoroutinefunction(task.func) else handler
    give_signature(found, task)
    return found


def make_handler(app: Any, task: Any) -> Callable[..., Any]:
    """Return the handler of a task: what a worker calls."""

    def handler(run: Run, /, *args: Any, **kwargs: Any) -> Any:
        with_connections = not app.database.records  # in a test, the thread and its connections are the caller's
        if with_connections:
            close_old_connections()
        try:
            return run_plain(Attempt(app, task, run, by_name(task, args, kwargs)), task)
        finally:
            if with_connections:
                close_old_connections()

    async def handler_async(run: Run, /, *args: Any, **kwargs: Any) -> Any:
        async with nullcontext() if app.database.records else own_thread():
            attempt = await sync_to_async(Attempt)(app, task, run, by_name(task, args, kwargs))
            return await run_async(attempt, task)

    found: Callable[..., Any] = handler_async if inspect.iscoroutinefunction(task.func) else handler
    give_signature(found, task)
    return found


def run_plain(attempt: Attempt, task: Any) -> Any:
    """Call the function of a task, and send the signals."""
    signals.task_started.send_robust(attempt.sender, task_result=attempt.result)
    try:
        value = attempt.succeed(task.func(*attempt.args, **attempt.kwargs))
    except BaseException as error:
        if attempt.fail(error):
            signals.task_finished.send_robust(attempt.sender, task_result=attempt.result)
        raise
    if attempt.is_valid:
        signals.task_finished.send_robust(attempt.sender, task_result=attempt.result)
    return value


async def run_async(attempt: Attempt, task: Any) -> Any:
    """Await the coroutine function of a task, and send the signals."""
    await signals.task_started.asend_robust(attempt.sender, task_result=attempt.result)
    try:
        value = attempt.succeed(await task.func(*attempt.args, **attempt.kwargs))
    except BaseException as error:
        if attempt.fail(error):
            await signals.task_finished.asend_robust(attempt.sender, task_result=attempt.result)
        raise
    if attempt.is_valid:
        await signals.task_finished.asend_robust(attempt.sender, task_result=attempt.result)
    return value


def note_stopped(app: Any, run: Run, error: BaseException) -> None:
    """Send `task_finished` for a run whose last attempt timed out or took its process down: no handler does."""
    if not isinstance(error, TimedOut | Crashed) or run.attempt < run.max_attempts:
        return
    close_old_connections()
    try:
        info = app.run(run.id).info()
        task = app.declared_task(run.task)
        result = result_of(info, task, task.get_backend())
        if result.status != TaskResultStatus.FAILED:  # the worker writes the outcome now: it may be among the attempts
            earlier = [row for row in info.attempts if row["attempt"] < run.attempt]
            result = result_of(replace(info, attempts=earlier), task, task.get_backend())
            end_badly(result, error)
        signals.task_finished.send_robust(type(task.get_backend()), task_result=result)
    finally:
        close_old_connections()


def is_last(app: Any, run: Run, error: BaseException) -> bool:
    """Check whether a run has ended with this error of its handler."""
    meant = effective_error(error)
    if isinstance(meant, Snooze):
        return False
    return run.attempt >= run.max_attempts or not app.tasks[run.task].retry_rule.is_retried(error, meant)


def end_badly(result: Any, error: BaseException) -> None:
    """Let a result be FAILED, with this error as its last one."""
    kind = type(error)
    result.errors.append(
        TaskError(
            exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
            traceback="".join(traceback.format_exception(error)),
        )
    )
    change(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())


def change(result: Any, **values: Any) -> None:
    """Set attributes of a result, whose dataclass is frozen for users."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
