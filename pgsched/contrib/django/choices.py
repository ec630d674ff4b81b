"""What an entry of TASKS says about pgsched, in its OPTIONS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings

from pgsched.app.declarations import boolean, integer, text
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.contrib.django.backend import PgschedBackend

CHECKS = {"DATABASE": text(200), "APP": text(100), "MAX_ATTEMPTS": integer(1, 1000), "MIGRATE": boolean}


@dataclass(frozen=True, slots=True)
class Choices:
    """The OPTIONS of a backend.

    `database`: the alias of the database that has the runs.
    `app`: the name of the pgsched App, which owns the jobs that the project's code declares.
    `max_attempts`: of each task that does not say otherwise.
    `migrate`: `manage.py migrate` migrates pgsched's schema, too.
    """

    database: str
    app: str
    max_attempts: int = 1
    migrate: bool = True


def read_choices(given: Mapping[str, Any]) -> Choices:
    """Return the OPTIONS of a backend. Raises InputError for an unknown or wrong one."""
    if unknown := sorted({*given} - {*CHECKS}):
        hint = did_you_mean(unknown[0], CHECKS)
        raise InputError(f"{unknown[0]}: no such option; known are {', '.join(CHECKS)}{hint}", unknown[0])
    found = {name: CHECKS[name](name, value) for name, value in given.items()}
    return Choices(
        found.get("DATABASE", "default"),
        found.get("APP") or project_name(),
        found.get("MAX_ATTEMPTS", 1),
        found.get("MIGRATE", True),
    )


def project_name() -> str:
    """Return the name of the package that has the project's settings; `django` for settings without a package."""
    module = getattr(settings, "SETTINGS_MODULE", None) or getattr(settings, "ROOT_URLCONF", None) or ""
    package, dot, _ = str(module).partition(".")
    return package if dot else "django"


def own_backends() -> list[PgschedBackend]:
    """Return the backends of pgsched that TASKS has. One that cannot be imported is left to Django's own checks.

    Raises InputError for wrong OPTIONS.
    """
    if not getattr(settings, "TASKS", None):  # a project may use pgsched without Django's Tasks
        return []
    from pgsched.contrib.django.backend import PgschedBackend, WrongOptions
    from pgsched.contrib.django.tasks_api import InvalidTaskBackend, task_backends

    found = []
    for alias in task_backends:
        try:
            backend = task_backends[alias]
        except WrongOptions as error:
            raise InputError(str(error), "TASKS") from None
        except InvalidTaskBackend:
            continue
        if isinstance(backend, PgschedBackend):
            found.append(backend)
    return found


def choose_backend(alias: str | None = None) -> PgschedBackend | None:
    """Return the backend of this alias; None: "default" if that is of pgsched, or else the only one; None without any.

    Raises InputError where there is no such backend, where several could be meant, and for wrong OPTIONS.
    """
    found = {one.alias: one for one in own_backends()}
    if alias is not None:
        if alias not in found:
            has = ", ".join(found) or "none"
            raise InputError(f"backend: TASKS has no backend of pgsched named {alias!r}; it has: {has}", "backend")
        return found[alias]
    if "default" not in found and len({(one.choices.database, one.choices.app) for one in found.values()}) > 1:
        raise InputError(f"backend: TASKS has several of pgsched: name one of {', '.join(found)}", "backend")
    return found.get("default") or next(iter(found.values()), None)


def database_alias() -> str:
    """Return the alias of the database whose runs the models and the admin show.

    It is that of the backend "default" if that is of pgsched, or else that of the first one that is. Raises InputError
    for wrong OPTIONS.
    """
    found = {one.alias: one.choices.database for one in own_backends()}
    return found.get("default") or next(iter(found.values()), "default")
