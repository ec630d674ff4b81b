"""pgsched in a Django project: a backend of Django's Tasks, `manage.py pgsched`, an admin, and the ORM in handlers.

Add "pgsched.contrib.django" to INSTALLED_APPS, and "pgsched.contrib.django.PgschedBackend" to TASKS.

The names are imported when they are first used: Django imports this package before its apps are ready.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgsched.contrib.django.backend import PgschedBackend as PgschedBackend
    from pgsched.contrib.django.connections import close_connections as close_connections
    from pgsched.contrib.django.declared import periodic as periodic
    from pgsched.contrib.django.declared import task_options as task_options
    from pgsched.contrib.django.project_app import get_app as get_app

_HOMES = {
    "PgschedBackend": "backend",
    "close_connections": "connections",
    "get_app": "project_app",
    "periodic": "declared",
    "task_options": "declared",
}

__all__ = ["PgschedBackend", "close_connections", "get_app", "periodic", "task_options"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
