"""Assertions about enqueued runs.

They look where the task's app enqueues: at the recorder, or into the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pgsched.app.base import AppBase
from pgsched.app.task import Task
from pgsched.core.text import did_you_mean
from pgsched.db.queries.testing import unfinished_runs
from pgsched.errors import InputError
from pgsched.testing.found import Enqueued, enqueued_from_row
from pgsched.testing.recorder import Recorder
from pgsched.testing.wanted import Args, Wanted

if TYPE_CHECKING:
    from pgsched.db.callers.connection_types import SyncConn

NEAR = timedelta(seconds=1)
MOST_SHOWN = 20


class Columns(TypedDict, total=False):
    """The values of a run that an assertion may ask for, besides `args` and `at`: the fields of `Enqueued`."""

    queue: str
    priority: int
    tags: Sequence[str]
    unique_key: str | None
    idempotency_key: str | None
    concurrency_key: str | None
    state: str
    result: Any
    error: str | None
    reason: str | None
    attempt: int
    max_attempts: int
    slot: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    keep: timedelta | None
    kill_after: timedelta | None
    backoff: str | None
    backoff_base: timedelta | None
    backoff_max: timedelta | None
    backoff_jitter: float | None


def enqueued(what: AppBase | Task[..., Any], *, connection: SyncConn | None = None) -> list[Enqueued]:
    """Return the unfinished runs of a task, or of all tasks of an app's database, in the order in which they were made.

    `connection`: look on this connection, and so into its open transaction.
    """
    app, name = (what, None) if isinstance(what, AppBase) else (what.app, what.name)
    database: Any = app.database
    if isinstance(database, Recorder):
        runs = [*database.runs, *(database.pending(connection) if connection is not None else [])]
        return [run for run in sorted(runs, key=lambda run: run.id) if run.is_open and name in (None, run.task)]
    return [enqueued_from_row(row) for row in database.send(connection, lambda conn: unfinished_runs(conn, name))]


def assert_enqueued(
    task: Task[..., Any],
    *,
    args: Args = None,
    at: datetime | None = None,
    within: float | timedelta = NEAR,
    connection: SyncConn | None = None,
    **columns: Unpack[Columns],
) -> Enqueued:
    """Assert that an unfinished run of the task matches; return the first that does.

    `args`: a mapping that the run's arguments must contain (others are allowed), or the whole list of arguments. The
      values are those that `enqueue` takes.
    `at`: when the run is due, a datetime with a time zone.
    `within`: how far the run may be from `at`, in seconds or as a timedelta (1 s).
    `connection`: look on this connection, and so into its open transaction.
    `columns`: values of queue, priority, tags, unique_key and the other fields of `Enqueued`.

    Raises AssertionError, with the runs that are enqueued, nearest first, if none matches; InputError for an unknown
    column or argument; TaskError for an argument that the task could never get.
    """
    __tracebackhide__ = True
    wanted = Wanted(task, args, at, within, check_columns(columns))
    found = enqueued(task, connection=connection)
    for run in found:
        if not wanted.differences(run):
            return run
    raise AssertionError(failure_message(f"no run of {task.name} {wanted}is enqueued", wanted, connection))


def refute_enqueued(
    task: Task[..., Any],
    *,
    args: Args = None,
    at: datetime | None = None,
    within: float | timedelta = NEAR,
    connection: SyncConn | None = None,
    **columns: Unpack[Columns],
) -> None:
    """Assert that no unfinished run of the task matches; the arguments are those of `assert_enqueued`.

    Raises AssertionError, with the matching runs, if one matches; InputError and TaskError as `assert_enqueued` does.
    """
    __tracebackhide__ = True
    wanted = Wanted(task, args, at, within, check_columns(columns))
    fitting = [run for run in enqueued(task, connection=connection) if not wanted.differences(run)]
    if fitting:
        raise AssertionError(
            "\n".join([f"a run of {task.name} {wanted}is enqueued; enqueued are:", *lines_of_runs(fitting)])
        )


def check_columns(columns: Columns) -> dict[str, Any]:
    """Return the columns. Raises InputError for a name that is none: refuting it would prove nothing."""
    known = [field.name for field in fields(Enqueued) if field.name not in ("id", "task")]
    for name in columns:
        if name not in known:
            raise InputError(
                f"{name}: no such column of a run; known are {', '.join(known)}{did_you_mean(name, known)}", name
            )
    return {**columns}


def failure_message(what: str, wanted: Wanted, connection: SyncConn | None) -> str:
    """Return the message of a failed `assert_enqueued`: the runs that are enqueued instead, the nearest first.

    It adds runs that an assertion does not count: those of open transactions, and those that have ended.
    """
    task = wanted.task
    runs = enqueued(task.app, connection=connection)
    nearest = sorted(runs, key=lambda run: (run.task != task.name, len(wanted.differences(run))))
    lines = [f"{what}; enqueued are:" if runs else f"{what}; nothing is"]
    lines += lines_of_runs(nearest, wanted)
    database: Any = task.app.database
    if isinstance(database, Recorder):
        shown = {run.id for run in runs}
        waiting = [run for run in database.pending() if run.id not in shown]
        ended = [run for run in database.runs if run.task == task.name and not run.is_open]
        lines += ["in a transaction that is open (look with connection=):", *lines_of_runs(waiting)] if waiting else []
        lines += ["ended, and therefore not counted (see recorder.runs):", *lines_of_runs(ended)] if ended else []
    return "\n".join(lines)


def lines_of_runs(runs: list[Enqueued], wanted: Wanted | None = None) -> list[str]:
    """Return a line for each of the first runs. `wanted`: say how runs of its task differ from it."""
    lines = []
    for run in runs[:MOST_SHOWN]:
        differs = wanted.differences(run) if wanted is not None and run.task == wanted.task.name else []
        lines.append("; ".join([f"  {run}", *([", ".join(differs)] if differs else [])]))
    more = len(runs) - MOST_SHOWN
    return [*lines, *([f"  and {more} more"] if more > 0 else [])]
