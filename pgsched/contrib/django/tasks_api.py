"""The names of Django's Tasks: of `django.tasks` (Django 6), or of its backport, the package django-tasks.

Invariant: the rest of this package takes these names from here, and works with both.

Sources: "Tasks" in Django's reference (docs.djangoproject.com/en/stable/ref/tasks/) and topics (.../topics/tasks/); the
README of the backport (github.com/RealOrangeOne/django-tasks). The backport has had other names for two exceptions.
"""

from __future__ import annotations

from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured

if django.VERSION >= (6, 0):
    from django import tasks
    from django.tasks import exceptions, signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.utils.json import normalize_json
else:
    try:
        import django_tasks as tasks
        from django_tasks import exceptions, signals
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.utils import normalize_json
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        raise ImproperlyConfigured(
            f"Django {django.get_version()} has no Tasks: install the package django-tasks, or Django 6"
        ) from None

__all__ = [
    "BaseTaskBackend", "InvalidTask", "InvalidTaskBackend", "Task", "TaskContext", "TaskError", "TaskResult",
    "TaskResultDoesNotExist", "TaskResultStatus", "exceptions", "normalize_json", "signals", "task_backends", "tasks",
]  # fmt: skip

task_backends: Any = tasks.task_backends
InvalidTask: Any = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
InvalidTaskBackend: Any = getattr(exceptions, "InvalidTaskBackend", None) or exceptions.InvalidTaskBackendError
TaskResultDoesNotExist: Any = exceptions.TaskResultDoesNotExist
