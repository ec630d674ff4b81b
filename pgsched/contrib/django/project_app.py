"""The pgsched App of a Django project: it has the tasks of its backends, and finds its database in DATABASES.

Invariant: there is one App for each database. What the code declares is registered when it is needed, after the modules
have been imported.
"""

from __future__ import annotations

import threading
from typing import Any

from pgsched.app.task import Task
from pgsched.client.application import App
from pgsched.contrib.django import declared
from pgsched.contrib.django.choices import choose_backend, own_backends
from pgsched.contrib.django.connections import ThreadOfTest
from pgsched.contrib.django.dsn import dsn_of
from pgsched.contrib.django.handlers import make_handler, note_stopped
from pgsched.contrib.django.priorities import priority_of
from pgsched.errors import InputError

_apps: dict[tuple[str, str], ProjectApp] = {}  # by the alias of the database, and the name
_lock = threading.RLock()


class ProjectApp(App):
    """The App of a project. `database_alias`: whose runs are in this entry of DATABASES."""

    def __init__(self, name: str, database_alias: str) -> None:
        self.database_alias = database_alias
        super().__init__(name)
        self._jobs_declared: set[int] = set()
        self.hooks.in_tests = ThreadOfTest()
        self.on_error(lambda run, error: note_stopped(self, run, error))

    @property
    def dsn(self) -> str | None:
        """Return the connection string of the database as it is now: Django's tests change it."""
        return dsn_of(self.database_alias)

    @dsn.setter
    def dsn(self, value: str | None) -> None:
        """Do nothing: DATABASES says it."""

    def find_task(self, alias: str, task: Any) -> Task[..., Any]:
        """Return pgsched's task for one of Django's, after registering it if it is new."""
        if (found := self.tasks.get(task.module_path)) is None:
            with _lock:
                self._register_task(alias, task.module_path)
            found = self.tasks[task.module_path]
        return found

    def register_declared(self) -> None:
        """Register all tasks and jobs that are known so far. Raises InputError or TaskError for a wrong one."""
        with _lock:
            for alias in self.backend_aliases():
                for task in declared.tasks_of(alias):
                    self._register_task(alias, task.module_path)
                for job in declared.jobs_of(alias):
                    if id(job) not in self._jobs_declared:
                        self.job(**{**attempts_of(job.task), **job.keywords})(self.tasks[job.task.module_path])
                        self._jobs_declared.add(id(job))

    def backend_aliases(self) -> list[str]:
        """Return the aliases of the backends whose tasks this App has."""
        return [one.alias for one in own_backends() if one.app is self]

    def declared_task(self, path: str) -> Any:
        """Return Django's task of a registered one."""
        known = (declared.known_task(alias, path) for alias in self.backend_aliases())
        return next(task for task in known if task is not None)

    def _register_task(self, alias: str, path: str) -> None:
        if path in self.tasks:
            return
        task = declared.known_task(alias, path)
        options = {**attempts_of(task), **declared.options_of(path)}
        self.task(name=path, queue=task.queue_name, priority=priority_of(task.priority), **options)(
            make_handler(self, task)
        )


def attempts_of(task: Any) -> dict[str, Any]:
    """Return MAX_ATTEMPTS of a task's backend as an option; nothing where `@task_options` says it.

    Several backends may share an App, and each has its own.
    """
    has_its_own = "max_attempts" in declared.options_of(task.module_path)
    return {} if has_its_own else {"max_attempts": task.get_backend().choices.max_attempts}


def find_app(database: str, name: str) -> ProjectApp:
    """Return the App of this name whose runs are in this entry of DATABASES."""
    with _lock:
        if (database, name) not in _apps:
            _apps[database, name] = ProjectApp(name, database)
        return _apps[database, name]


def get_app(backend: str | None = None) -> ProjectApp:
    """Return the App of a backend in TASKS, with all tasks and jobs of the project, for workers and for tests.

    `backend`: its alias; None: "default" if that is of pgsched, or else the only one that is.

    Raises InputError where there is none, and where several could be meant.
    """
    chosen = choose_backend(backend)
    if chosen is None:
        raise InputError("TASKS has no backend of pgsched: add pgsched.contrib.django.PgschedBackend", "TASKS")
    app = chosen.app
    declared.discover()
    app.register_declared()
    return app
