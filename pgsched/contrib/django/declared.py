"""What the project's code declares: its tasks, and what `@task_options` and `@periodic` say about them.

Invariant: only tasks that this process has imported are known; a name in a row never imports anything but the modules
`tasks` of the installed apps.

The decorators stand above `@task`. With a backend of another product, as in tests, they check and do nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, Unpack

from django.apps import apps
from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from pgsched.app.declarations import JobKeywords, integer
from pgsched.client.application import App
from pgsched.contrib.django.handlers import check_handler
from pgsched.contrib.django.priorities import HIGHEST, LOWEST, priority_of
from pgsched.contrib.django.tasks_api import Task
from pgsched.errors import InputError

T = TypeVar("T")
# options of pgsched's tasks that Django's own say already, and those that another kind of handler needs
ELSEWHERE = {
    "name": "the name of a task is that of its function",
    "queue": "give @task(queue_name=...)",
    "priority": "give @task(priority=...)",
    "at": "give task.using(run_after=...)",
    "delay": "give task.using(run_after=...)",
    "batch": "Django's tasks have one call for each run",
    "batch_wait": "Django's tasks have one call for each run",
    "extra": "give the function a parameter **kwargs",
}


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """A job that `@periodic` declares for a task. `keywords`: those of `App.job`."""

    task: Any
    keywords: dict[str, Any]


_tasks: dict[tuple[str, str], Any] = {}  # by the alias of the backend, and the path of the function
_options: dict[str, dict[str, Any]] = {}  # by the path of the function
_jobs: list[DeclaredJob] = []


def note_task(alias: str, task: Any) -> None:
    """Note a task of a backend of pgsched. The first counts, unless the function was defined anew.

    A time that `using` has set is left out: it is that of one call.
    """
    key = alias, task.module_path
    if task.run_after is not None:
        task = replace(task, run_after=None)
    known = _tasks.get(key)
    if known is None or known.func is not task.func:
        _tasks[key] = task


def known_task(alias: str, path: str) -> Any:
    """Return a task of a backend by the path of its function, or None. Imports the modules `tasks` if need be."""
    if (alias, path) not in _tasks:
        discover()
    return _tasks.get((alias, path))


def tasks_of(alias: str) -> list[Any]:
    """Return the tasks of a backend that are known so far."""
    return [task for (own, _), task in [*_tasks.items()] if own == alias]


def jobs_of(alias: str) -> list[DeclaredJob]:
    """Return the jobs of a backend's tasks that are known so far."""
    return [job for job in [*_jobs] if job.task.backend == alias]


def options_of(path: str) -> Mapping[str, Any]:
    """Return what `@task_options` says about a task."""
    return _options.get(path, {})


def discover() -> None:
    """Import the module `tasks` of each installed app that has one."""
    apps.check_apps_ready()
    autodiscover_modules("tasks")


def task_options(**options: Any) -> Callable[[T], T]:
    """Set options of pgsched for all runs of a task: `@task_options(max_attempts=5)` above `@task`.

    `options`: those of `App.task`, such as `max_attempts`, `timeout`, `retry_on`, `concurrency`, `rate`, `unique_key`,
    `run_in`; not those that Django's `@task` has (queue_name, priority).

    Raises InputError or TaskError for a wrong one.
    """
    for name in options:
        if name in ELSEWHERE:
            raise InputError(f"{name}: {ELSEWHERE[name]}", name)

    def declare(task: T) -> T:
        found: Any = check_is_task(task, "task_options")
        scratch = App("check")
        scratch.task(name=found.module_path, **options)(check_handler(found))
        _options[found.module_path] = {**_options.get(found.module_path, {}), **options}
        return task

    return declare


def periodic(
    *,
    schedule: str,
    timezone: str | None = None,
    name: str | None = None,
    args: Any = None,
    like: Literal["cron", "kubernetes", "temporal", "celery"] | None = None,
    **policies: Unpack[JobKeywords],
) -> Callable[[T], T]:
    """Declare a job of a task: `@periodic(schedule="0 3 * * *")` above `@task`. A worker makes its row when it starts.

    `schedule`: a cron expression, or `@every 90s` and others, read in `timezone` (the setting TIME_ZONE).
    `name`: the job's name; by default the path of the function.
    `args`: a dict of arguments by name, or a list of arguments by position.
    `like`: the policies that a job of another product has; those that you write beside it win.
    `policies`: columns of `jobs`, as `App.job` takes them. `priority` is one of Django's, as in `@task`.

    Raises InputError (ScheduleError for the schedule) or TaskError for a wrong declaration.
    """
    if (priority := policies.get("priority")) is not None:
        policies["priority"] = priority_of(integer(LOWEST, HIGHEST)("priority", priority))
    keywords = {"schedule": schedule, "timezone": timezone or settings.TIME_ZONE, "name": name, "args": args,
                "like": like, **policies}  # fmt: skip
    App("check").job(**keywords)  # refuses a wrong schedule or policy where it stands

    def declare(task: T) -> T:
        found: Any = check_is_task(task, "periodic")
        scratch = App("check")
        scratch.job(**keywords)(scratch.task(name=found.module_path)(check_handler(found)))
        if (queue := policies.get("queue")) is not None:
            found.using(queue_name=queue)  # raises where the setting QUEUES does not have it
        _jobs.append(DeclaredJob(found, keywords))
        return task

    return declare


def check_is_task(task: Any, decorator: str) -> Any:
    """Return one of Django's tasks. Raises InputError for anything else."""
    if not isinstance(task, Task):
        kind = type(task).__name__
        raise InputError(f"{decorator}: expected a task of Django, got a {kind}: it stands above @task", decorator)
    return task
