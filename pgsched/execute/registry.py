"""The registry of executors: builds one for each kind of work that a worker allows.

Invariant: a worker has executors only for the kinds it allows, and reports these kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pgsched.app.app_location import LocatedApp
from pgsched.app.hooks import Hooks
from pgsched.config import WorkerSettings
from pgsched.core.model import Kind
from pgsched.execute.base import Executor
from pgsched.execute.http.executor import HttpExecutor
from pgsched.execute.output.record import Journal
from pgsched.execute.python.executor import PythonExecutor
from pgsched.execute.python.handler import Handler
from pgsched.execute.sql import SqlExecutor
from pgsched.execute.subprocess.account import find_account
from pgsched.execute.subprocess.command import CommandExecutor
from pgsched.execute.subprocess.program import Processes
from pgsched.execute.subprocess.shell import ShellExecutor


class Tasks(LocatedApp, Protocol):
    """An app, reduced to the parts that executors need."""

    @property
    def tasks(self) -> Mapping[str, Handler]:
        """The registered tasks, by name."""
        ...

    @property
    def hooks(self) -> Hooks:
        """The app's hooks and middleware."""
        ...


def make_executors(
    app: Tasks | None, settings: WorkerSettings, dsn: str, journal: Journal | None = None
) -> dict[str, Executor]:
    """Return an executor for each allowed kind, by the kind's name.

    `journal` receives the attempts' output. Raises InputError for HTTP without httpx, or for a wrong `http_allow`,
    connection string or user.
    """
    allow, login = settings.allow, settings.sql_login
    processes = Processes(journal, None if settings.run_as is None else find_account(settings.run_as))
    hooks = app.hooks if app else None
    executor_of_kind: dict[Kind, Executor] = {
        Kind.TASK: PythonExecutor(app.tasks if app else {}, settings.concurrency, app, journal, hooks),
        Kind.COMMAND: CommandExecutor(processes),
        Kind.SHELL: ShellExecutor(processes),
        Kind.SQL: SqlExecutor(login or dsn, journal, fenced=login is None, named=settings.sql_dsns),
    }
    if Kind.HTTP in allow:  # the only kind that needs an optional package
        executor_of_kind[Kind.HTTP] = HttpExecutor(settings.http_allow, settings.concurrency)
    return {kind.value: executor for kind, executor in executor_of_kind.items() if kind in allow}
