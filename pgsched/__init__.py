"""The public names of pgsched, a distributed scheduler and work queue that needs nothing but PostgreSQL.

They are imported when they are first used, so that `import pgsched` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgsched.app.batch_item import Item as Item
    from pgsched.app.rules.unique_keys import bucket as bucket
    from pgsched.app.rules.unique_keys import sliding as sliding
    from pgsched.app.run import Run as Run
    from pgsched.app.run_handle import RunHandle as RunHandle
    from pgsched.app.signals import Discard as Discard
    from pgsched.app.signals import Retry as Retry
    from pgsched.app.signals import Snooze as Snooze
    from pgsched.app.task import Task as Task
    from pgsched.client.application import App as App
    from pgsched.core.model import RunId as RunId
    from pgsched.core.model import State as State
    from pgsched.core.run_info import LogLine as LogLine
    from pgsched.core.run_info import RunInfo as RunInfo
    from pgsched.core.run_info import RunSummary as RunSummary
    from pgsched.errors import AlreadyEnqueued as AlreadyEnqueued
    from pgsched.errors import ClaimLost as ClaimLost
    from pgsched.errors import Crashed as Crashed
    from pgsched.errors import DatabaseReadOnly as DatabaseReadOnly
    from pgsched.errors import DatabaseUnreachable as DatabaseUnreachable
    from pgsched.errors import InputError as InputError
    from pgsched.errors import LeaseLost as LeaseLost
    from pgsched.errors import LockTimeout as LockTimeout
    from pgsched.errors import NotFound as NotFound
    from pgsched.errors import NotPermitted as NotPermitted
    from pgsched.errors import PgschedError as PgschedError
    from pgsched.errors import QueueFull as QueueFull
    from pgsched.errors import RunFailed as RunFailed
    from pgsched.errors import RunGone as RunGone
    from pgsched.errors import ScheduleError as ScheduleError
    from pgsched.errors import TaskError as TaskError
    from pgsched.errors import TimedOut as TimedOut
    from pgsched.errors import WaitCancelled as WaitCancelled
    from pgsched.errors import WrongFleet as WrongFleet

__version__ = "0.1.0"

_HOMES = {
    "App": "pgsched.client.application",
    "Task": "pgsched.app.task",
    "Item": "pgsched.app.batch_item",
    "Run": "pgsched.app.run",
    "Retry": "pgsched.app.signals",
    "Discard": "pgsched.app.signals",
    "Snooze": "pgsched.app.signals",
    "RunHandle": "pgsched.app.run_handle",
    "RunId": "pgsched.core.model",
    "RunSummary": "pgsched.core.run_info",
    "RunInfo": "pgsched.core.run_info",
    "LogLine": "pgsched.core.run_info",
    "State": "pgsched.core.model",
    "bucket": "pgsched.app.rules.unique_keys",
    "sliding": "pgsched.app.rules.unique_keys",
    "PgschedError": "pgsched.errors",
    "AlreadyEnqueued": "pgsched.errors",
    "ClaimLost": "pgsched.errors",
    "Crashed": "pgsched.errors",
    "TimedOut": "pgsched.errors",
    "InputError": "pgsched.errors",
    "LeaseLost": "pgsched.errors",
    "LockTimeout": "pgsched.errors",
    "NotFound": "pgsched.errors",
    "NotPermitted": "pgsched.errors",
    "QueueFull": "pgsched.errors",
    "RunFailed": "pgsched.errors",
    "RunGone": "pgsched.errors",
    "WaitCancelled": "pgsched.errors",
    "WrongFleet": "pgsched.errors",
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
