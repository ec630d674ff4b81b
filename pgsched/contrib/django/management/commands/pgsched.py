"""`manage.py pgsched ...`: the command line of pgsched, on the project's database and with the project's tasks.

What follows `pgsched` is as on the command line of pgsched itself. Before it may stand `--backend ALIAS`, for a project
with several backends of pgsched, or `--database ALIAS`, for one that has none in TASKS.

Source: docs.djangoproject.com/en/stable/howto/custom-management-commands/.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pgsched.cli import hide_secrets, run, run_as_program
from pgsched.cli.messages import print_error
from pgsched.contrib.django.choices import choose_backend
from pgsched.contrib.django.dsn import dsn_of
from pgsched.errors import InputError

APP = "pgsched.contrib.django.project"
DSN = "_PGSCHED_DJANGO_DSN"  # a `--dsn` that was taken off the command line: PGSCHED_DSN is that of the project
OWN = ("--backend", "--database")
OF_DJANGO = ("--settings", "--pythonpath")  # `manage.py` has read them already


class Command(BaseCommand):
    """The command `manage.py pgsched`."""

    help = "The command line of pgsched: worker, migrate, status, and all others; see `manage.py pgsched --help`."
    requires_system_checks: tuple[str, ...] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Hand the arguments to pgsched, and end with its exit code."""
        hide_secrets(DSN)
        sys.exit(self.call_pgsched(argv[2:], run_as_program))

    def add_arguments(self, parser: Any) -> None:
        """Let `call_command("pgsched", "status")` give any arguments."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """Do what `run_from_argv` does for `call_command`. Raises CommandError with pgsched's exit code."""
        if code := self.call_pgsched(arguments, run):
            raise CommandError(f"pgsched {' '.join(arguments)} failed", returncode=code)

    def call_pgsched(self, given: list[str], call: Callable[[list[str]], int]) -> int:
        """Run pgsched's command line on the project's database; return its exit code."""
        args, own = split_own(given)
        dsn = os.environ.pop(DSN, None)
        before = {name: os.environ.get(name) for name in ("PGSCHED_DSN", "PGSCHED_APP", "PGSCHED_DJANGO_BACKEND")}
        try:
            os.environ.update(project_environment(own.get("--backend"), own.get("--database")))
            if dsn is not None:
                os.environ["PGSCHED_DSN"] = dsn
            return call(args)
        except InputError as error:
            return print_error(str(error), error.exit_code, "input", error.field)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def split_own(given: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments for pgsched, and the values of those for this command and for Django."""
    args: list[str] = []
    found: dict[str, str] = {}
    words = iter(given)
    for word in words:
        name, sign, value = word.partition("=")
        if word == "--":
            args += [word, *words]
        elif name in OF_DJANGO or (name in OWN and not args):
            found[name] = value if sign else next(words, "")
        else:
            args.append(word)
    return args, found


def project_environment(backend: str | None, database: str | None) -> dict[str, str]:
    """Return the variables by which pgsched and the processes that it starts find the database and the tasks.

    Raises InputError where there is no such backend or database, and for a database that is not PostgreSQL.
    """
    if database is not None:
        return {"PGSCHED_DSN": dsn_of(database)}
    chosen = choose_backend(backend)
    if chosen is None:
        return {"PGSCHED_DSN": dsn_of("default")}
    found = {"PGSCHED_DSN": dsn_of(chosen.choices.database), "PGSCHED_DJANGO_BACKEND": chosen.alias}
    return found if os.environ.get("PGSCHED_APP") else {**found, "PGSCHED_APP": APP}
