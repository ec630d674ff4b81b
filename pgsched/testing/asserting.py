"""Assertions about enqueued runs.

They look where the task's app enqueues: at the recorder, or into the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from pgsched.app.base import AppBase
from pgsched.app.task import Task
from pgsched.db.queries.testing import unfinished_runs
from pgsched.errors import InputError
from pgsched.testing.found import Enqueued, enqueued_from_row
from pgsched.testing.recorder import Recorder

NEAR = timedelta(seconds=1)


def enqueued(what: AppBase | Task[..., Any], *, connection: Any = None) -> list[Enqueued]:
    """Return the unfinished runs of a task, or of all tasks of an app's database, in the order in which they were made.

    `connection`: look on this connection, and so into its open transaction.
    """
    app, name = (what, None) if isinstance(what, AppBase) else (what.app, what.name)
    database: Any = app.database
    if isinstance(database, Recorder):
        return [run for run in database.runs if run.is_open and name in (None, run.task)]
    return [enqueued_from_row(row) for row in database.send(connection, lambda conn: unfinished_runs(conn, name))]


def assert_enqueued(
    task: Task[..., Any],
    *,
    args: Any = None,
    at: datetime | None = None,
    within: float | timedelta = NEAR,
    connection: Any = None,
    **columns: Any,
) -> Enqueued:
    """Assert that an unfinished run of the task matches; return the first that does.

    `args`: a mapping that the run's arguments must contain (others are allowed), or the whole list of arguments.
    `at`: when the run is due, a datetime with a time zone.
    `within`: how far the run may be from `at`, in seconds or as a timedelta (1 s).
    `connection`: look on this connection, and so into its open transaction.
    `columns`: values of queue, priority, tags, unique_key and the other fields of `Enqueued`.

    Raises AssertionError, with the runs that are enqueued, if none matches; InputError for an unknown column.
    """
    __tracebackhide__ = True
    check_columns(columns)
    found = enqueued(task, connection=connection)
    for run in found:
        if matches(run, args, at, within, columns):
            return run
    raise AssertionError(
        failure_message(
            f"no run of {task.name} {describe_wanted(args, at, columns)}is enqueued", task, found, connection
        )
    )


def refute_enqueued(
    task: Task[..., Any],
    *,
    args: Any = None,
    at: datetime | None = None,
    within: float | timedelta = NEAR,
    connection: Any = None,
    **columns: Any,
) -> None:
    """Assert that no unfinished run of the task matches; the arguments are those of `assert_enqueued`.

    Raises AssertionError, with the matching runs, if one matches; InputError for an unknown column.
    """
    __tracebackhide__ = True
    check_columns(columns)
    found = enqueued(task, connection=connection)
    fitting = [run for run in found if matches(run, args, at, within, columns)]
    if fitting:
        what = f"a run of {task.name} {describe_wanted(args, at, columns)}is enqueued"
        raise AssertionError(failure_message(what, task, fitting, connection))


def check_columns(columns: dict[str, Any]) -> None:
    """Raise InputError for a name that is no column of a run: refuting it would prove nothing."""
    known = [field.name for field in fields(Enqueued) if field.name not in ("id", "task")]
    for name in columns:
        if name not in known:
            raise InputError(f"{name}: no such column of a run; known are {', '.join(known)}", name)


def matches(run: Enqueued, args: Any, at: datetime | None, within: float | timedelta, columns: dict[str, Any]) -> bool:
    """Check whether a run matches."""
    near = within if isinstance(within, timedelta) else timedelta(seconds=within)
    if at is not None and abs(run.at - at) > near:
        return False
    if any(getattr(run, name) != tuple_to_list(value) for name, value in columns.items()):
        return False
    if isinstance(args, Mapping) and isinstance(run.args, Mapping):
        return all(name in run.args and run.args[name] == value for name, value in args.items())
    return args is None or run.args == tuple_to_list(args)


def tuple_to_list(value: Any) -> Any:
    """Return the value as JSON and the database have it: a tuple becomes a list."""
    return list(value) if isinstance(value, tuple) else value


def describe_wanted(args: Any, at: datetime | None, columns: dict[str, Any]) -> str:
    """Describe what was asked for, for a message."""
    asked = {"args": args, "at": at.isoformat() if at else None, **columns}
    words = ", ".join(f"{name}={value!r}" for name, value in asked.items() if value is not None)
    return f"with {words} " if words else ""


def failure_message(what: str, task: Task[..., Any], found: list[Enqueued], connection: Any) -> str:
    """Return the message of a failure, with the runs that are enqueued instead."""
    runs = found or enqueued(task.app, connection=connection)
    return "\n".join([f"{what}; enqueued are:" if runs else f"{what}; nothing is", *(f"  {run}" for run in runs[:20])])
