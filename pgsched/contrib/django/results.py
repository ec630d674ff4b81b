"""A run as Django's `TaskResult`: its status, its errors and its value.

Invariant: the status is that of the run: READY while it waits, also for its next attempt; FAILED if it is dead,
cancelled, missed or skipped.

Source: `TaskResult`, `TaskError` and `TaskResultStatus` in docs.djangoproject.com/en/stable/ref/tasks/.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from pgsched.contrib.django.arguments import split_arguments
from pgsched.contrib.django.priorities import django_value_of, priority_of
from pgsched.contrib.django.tasks_api import InvalidTask, TaskError, TaskResult, TaskResultStatus
from pgsched.core.lifecycle import ENDED_STATES
from pgsched.core.model import State
from pgsched.core.run_info import RunInfo

WITH_WORKER = (State.RUNNING, State.SUCCEEDED)  # their last attempt has no row among those that failed
AT_ONCE = timedelta(milliseconds=10)  # a run that is due so soon after it was made was not deferred
# how an attempt ended without an exception, and the class that says so
CLASSES = {
    "timed_out": "pgsched.errors.TimedOut",
    "crashed": "pgsched.errors.Crashed",
    "cancelled": "asyncio.exceptions.CancelledError",
    "interrupted": "asyncio.exceptions.CancelledError",
}
OTHERWISE = "pgsched.errors.PgschedError"
LONGEST_LINE = 1000  # an error is one line of at most so many characters


def result_of(info: RunInfo, task: Any, backend: Any) -> Any:
    """Return a run as a TaskResult. `task`: Django's task of the run."""
    args, kwargs = split_arguments(info.args)
    ended = info.state in ENDED_STATES
    began = next((row["started_at"] for row in info.attempts if row["started_at"]), None) or info.started_at
    if began is None and info.attempt and ended:
        began = info.finished_at  # a recorded run of a test has no other
    result = TaskResult(
        task=task_of_run(info, task, backend),
        id=str(info.id),
        status=status_of(info.state),
        enqueued_at=in_project_zone(info.created_at),
        started_at=in_project_zone(began),
        last_attempted_at=in_project_zone(info.started_at or began),
        finished_at=in_project_zone(info.finished_at) if ended else None,
        args=args,
        kwargs=kwargs,
        backend=backend.alias,
        errors=[*errors_of(info)],
        worker_ids=[*workers_of(info)],
    )
    if info.state is State.SUCCEEDED:
        object.__setattr__(result, "_return_value", info.result)
    return result


def status_of(state: State) -> Any:
    """Return Django's status for the state of a run."""
    if state is State.SUCCEEDED:
        return TaskResultStatus.SUCCESSFUL
    if state is State.RUNNING:
        return TaskResultStatus.RUNNING
    return TaskResultStatus.FAILED if state in ENDED_STATES else TaskResultStatus.READY


def task_of_run(info: RunInfo, task: Any, backend: Any) -> Any:
    """Return the task with the priority, the queue and the time of this run, which `using` may have changed."""
    changed: dict[str, Any] = {}
    if priority_of(task.priority) != info.priority:
        changed["priority"] = django_value_of(info.priority)
    if task.queue_name != info.queue:
        changed["queue_name"] = info.queue
    at = info.available_at
    first = info.attempt == 0 or (info.attempt == 1 and info.state in WITH_WORKER)  # a retry moves the time
    if at is not None and first and at - info.created_at > AT_ONCE:
        changed["run_after"] = in_project_zone(at)
    try:
        return task.using(backend=backend.alias, **changed) if changed or task.backend != backend.alias else task
    except InvalidTask:  # an operator has moved the run to a queue that the setting QUEUES does not have
        return task


def workers_of(info: RunInfo) -> Iterator[str]:
    """Yield the names of the workers that made the attempts, the oldest first."""
    yield from (row["worker"] for row in info.attempts if row["worker"])
    if info.state in WITH_WORKER and info.attempt:
        yield info.worker or "unknown"


def errors_of(info: RunInfo) -> Iterator[Any]:
    """Yield the errors of the attempts, the oldest first; of a run that failed without one, why it has ended."""
    found = [row for row in info.attempts if row["error"] or row["outcome"] in CLASSES]
    for row in found:
        line = row["error"] or row["outcome"]
        path = CLASSES.get(row["outcome"]) or class_path(line, row["traceback"])
        yield TaskError(exception_class_path=path, traceback=row["traceback"] or f"{line}\n")
    if status_of(info.state) == TaskResultStatus.FAILED and (not found or info.state is not State.DEAD):
        line = (info.error if info.state is State.DEAD else info.reason) or info.reason or f"the run is {info.state}"
        path = CLASSES["cancelled"] if info.state is State.CANCELLED else OTHERWISE
        yield TaskError(exception_class_path=path, traceback=f"{line}\n")


def class_path(error: str, traceback: str | None) -> str:
    """Return the path of the class of an exception, from its line (`Name: message`) and its traceback.

    Texts in the traceback may be somebody else's, and they name no class: a line of a message of several lines, and the
    message of an exception that was the cause. So the line has to begin with the whole error. Where several lines do,
    and name different classes, the one that begins the end of the traceback counts, if its class is loaded already.
    """
    name = error.partition(":")[0]
    if not traceback or not re.fullmatch(r"\w+", name):
        return OTHERWISE
    is_cut = len(error) == LONGEST_LINE
    meant = error[: LONGEST_LINE - 3] if is_cut else error
    whole = " ".join(traceback.split())
    fitting, last, at = set(), OTHERWISE, 0
    for line in traceback.splitlines():
        found = re.match(rf"((?:[\w<>]+\.)*){name}(?=:|$)", line)
        if found is not None and whole.startswith(meant, at + len(found[1])):
            path = f"{found[1] or 'builtins.'}{name}"
            fitting.add(path)
            if not is_cut and len(whole) == at + len(found[1]) + len(meant):
                last = path
        at += len(shown) + 1 if (shown := " ".join(line.split())) else 0
    if len(fitting) == 1:
        return fitting.pop()
    return last if is_loaded_exception(last) else OTHERWISE


def is_loaded_exception(path: str) -> bool:
    """Check whether a path is that of an exception of a module that is imported already. Imports nothing."""
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def in_project_zone(at: datetime | None) -> datetime | None:
    """Return an instant as Django's own columns have it: without a zone where USE_TZ is False."""
    return timezone.make_naive(at) if at is not None and not settings.USE_TZ else at
