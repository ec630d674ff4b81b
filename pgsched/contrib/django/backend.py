"""The backend of Django's Tasks that enqueues into pgsched, and reads what became of the runs.

Invariant: a run is made and read on Django's own connection. So it is part of the transaction of the request, and a
`TestCase` sees it.

Sources: `BaseTaskBackend` in docs.djangoproject.com/en/stable/ref/tasks/, "Transactions" and "Task results" in
docs.djangoproject.com/en/stable/topics/tasks/.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core import checks
from django.db import connections
from django.utils import timezone

from pgsched.contrib.django import declared
from pgsched.contrib.django.arguments import pack
from pgsched.contrib.django.choices import own_backends, read_choices
from pgsched.contrib.django.dsn import wrong_engine
from pgsched.contrib.django.priorities import priority_of
from pgsched.contrib.django.project_app import ProjectApp, attempts_of, find_app
from pgsched.contrib.django.results import result_of
from pgsched.contrib.django.tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    signals,
)
from pgsched.errors import InputError, NotFound

CONTRIB = "pgsched.contrib.django"
LONGEST_NAME, LONGEST_QUEUE = 200, 100


class WrongOptions(InvalidTaskBackend):
    """A backend of pgsched has wrong OPTIONS."""


class PgschedBackend(BaseTaskBackend):
    """Runs of Django's tasks in pgsched: `TASKS = {"default": {"BACKEND": "pgsched.contrib.django.PgschedBackend"}}`.

    OPTIONS: DATABASE (alias, "default"), APP (the name of the App), MAX_ATTEMPTS (1), MIGRATE (True). See `Choices`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        try:
            self.choices = read_choices(self.options)
        except InputError as error:
            raise WrongOptions(f"TASKS[{alias!r}]['OPTIONS']: {error}") from None

    @property
    def app(self) -> ProjectApp:
        """Return the pgsched App that has the tasks of this backend."""
        return find_app(self.choices.database, self.choices.app)

    def validate_task(self, task: Any) -> None:
        """Check a task when it is made, and note it for workers. Raises InvalidTask."""
        super().validate_task(task)
        if task.func.__module__ == "__main__":
            raise InvalidTask(
                f"{task.func.__name__} is defined in __main__, which no worker can import: move it to a module"
            )
        for what, name, longest in (
            ("name", task.module_path, LONGEST_NAME),
            ("queue_name", task.queue_name, LONGEST_QUEUE),
        ):
            if not 0 < len(name) <= longest or not name.isprintable() or name != name.strip():
                raise InvalidTask(f"{what}: expected 1 to {longest} printable characters, got {name[:250]!r}")
        declared.note_task(self.alias, task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Make a run on Django's connection, in its transaction; return its result, which is READY.

        `aenqueue` does the same in the thread that asgiref keeps for Django's connections.

        Raises InvalidTask; TypeError for arguments that are not JSON or do not fit the function; QueueFull, LockTimeout
        and AlreadyEnqueued as `Task.enqueue` of pgsched; errors of `django.db`.
        """
        self.validate_task(task)
        given = normalize_json([*args]), normalize_json({**kwargs})
        app, connection = self.app, connections[self.choices.database]
        request = app.find_task(self.alias, task).options(
            connection=connection,
            queue=task.queue_name,
            priority=priority_of(task.priority),
            **attempts_of(task),
            **({} if task.run_after is None else {"at": aware(task.run_after)}),
        )
        packed = pack(task, *given)
        with connection.wrap_database_errors:
            run = request.enqueue(**packed)
        result = TaskResult(
            task=task, id=str(int(run)), status=TaskResultStatus.READY, enqueued_at=timezone.now(), started_at=None,
            finished_at=None, last_attempted_at=None, args=given[0], kwargs=given[1], backend=self.alias, errors=[],
            worker_ids=[],
        )  # fmt: skip
        if app.database.records or not run.created:  # in a test it may have run; with a unique key it may be older
            result.refresh()
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return what is known about a run, by its id. Raises TaskResultDoesNotExist.

        A run of another program, or of a task that this project does not have, does not exist here.
        """
        connection, text = connections[self.choices.database], str(result_id)
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise TaskResultDoesNotExist(result_id)
        try:
            with connection.wrap_database_errors:
                info = self.app.run(int(text)).info(connection=connection)
        except (NotFound, InputError):
            raise TaskResultDoesNotExist(result_id) from None
        task = declared.known_task(self.alias, info.task) if info.kind == "task" else None
        if task is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(info, task, self)

    def check(self, **_: Any) -> Iterator[Any]:
        """Yield what is wrong with the settings: Django's system checks (`manage.py check`) ask for it."""
        alias, where = self.choices.database, f"TASKS[{self.alias!r}]"
        if alias not in connections:
            yield checks.Error(f"{where}: DATABASES has no {alias!r}.", hint="OPTIONS['DATABASE'].", id="pgsched.E001")
        elif connections[alias].vendor != "postgresql":
            yield checks.Error(f"{where}: {wrong_engine(alias)}.", id="pgsched.E002")
        for other in own_backends():
            if other.choices.database == alias and other.choices.app != self.choices.app:
                yield checks.Error(
                    f"{where} and TASKS[{other.alias!r}] have their runs in one database, and different Apps.",
                    hint="Give both the same OPTIONS['APP'].",
                    id="pgsched.E003",
                )
        if not apps.is_installed(CONTRIB):
            yield checks.Warning(
                f"{where}: {CONTRIB!r} is not in INSTALLED_APPS.",
                hint="It brings `manage.py pgsched`, the admin, and the schema of test databases.",
                id="pgsched.W001",
            )


def aware(at: Any) -> Any:
    """Return an instant with a time zone; one without, as USE_TZ=False has them, is in the project's zone."""
    return timezone.make_aware(at) if timezone.is_naive(at) else at
