"""pgsched: a distributed scheduler and work queue that needs nothing but PostgreSQL. The public names, nothing else.

They are imported when first used, so that `import pgsched` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgsched.app import App as App
    from pgsched.errors import AlreadyEnqueued as AlreadyEnqueued
    from pgsched.errors import ClaimLost as ClaimLost
    from pgsched.errors import Crashed as Crashed
    from pgsched.errors import DatabaseReadOnly as DatabaseReadOnly
    from pgsched.errors import DatabaseUnreachable as DatabaseUnreachable
    from pgsched.errors import InputError as InputError
    from pgsched.errors import PgschedError as PgschedError
    from pgsched.errors import QueueFull as QueueFull
    from pgsched.errors import ScheduleError as ScheduleError
    from pgsched.errors import TaskError as TaskError
    from pgsched.errors import TimedOut as TimedOut
    from pgsched.execute.batched import Item as Item
    from pgsched.execute.context import Run as Run
    from pgsched.execute.signals import Discard as Discard
    from pgsched.execute.signals import Retry as Retry
    from pgsched.execute.signals import Snooze as Snooze
    from pgsched.model import RunId as RunId
    from pgsched.options import bucket as bucket
    from pgsched.task import Task as Task

__version__ = "0.1.0"

_HOMES = {
    "App": "pgsched.app",
    "Task": "pgsched.task",
    "Item": "pgsched.execute.batched",
    "Run": "pgsched.execute.context",
    "Retry": "pgsched.execute.signals",
    "Discard": "pgsched.execute.signals",
    "Snooze": "pgsched.execute.signals",
    "RunId": "pgsched.model",
    "bucket": "pgsched.options",
    "PgschedError": "pgsched.errors",
    "AlreadyEnqueued": "pgsched.errors",
    "ClaimLost": "pgsched.errors",
    "Crashed": "pgsched.errors",
    "TimedOut": "pgsched.errors",
    "InputError": "pgsched.errors",
    "QueueFull": "pgsched.errors",
    "ScheduleError": "pgsched.errors",
    "TaskError": "pgsched.errors",
    "DatabaseUnreachable": "pgsched.errors",
    "DatabaseReadOnly": "pgsched.errors",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pgsched' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
