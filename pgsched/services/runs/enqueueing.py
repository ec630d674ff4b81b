"""Enqueue a run by the name of its task, without its code: for the command line and the HTTP API.

Invariant: arguments that do not fit the schema of the newest release of the task are refused. An unknown task is only
noted, because its worker may come later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pgsched.app.options import Options
from pgsched.core import payload
from pgsched.core.input_values import json_or_text
from pgsched.core.model import RunId
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import raise_explained
from pgsched.db.queries.reports import name_hints, summary
from pgsched.db.queries.runs import enqueue as statements
from pgsched.db.queries.runs import runs, tasks
from pgsched.db.queries.runs.queue_room import retry_while_full, seconds_to_wait
from pgsched.errors import InputError, NotFound

MISFIT = re.compile(r"(?:([^:]+?): |(.+) is missing$)")  # the beginnings of what `check_args` says

# What each way to get a run means (RunId.how), other than making one.
HOW = {
    "existing": "a run that has the unique key",
    "replaced": "a run that had the unique key, and its work was replaced",
    "merged": "a run that had the unique key, and its arguments were merged",
    "repeated": "the idempotency key was used before, and this is the run of that request",
}


def enqueue_by_name(conn: Connection[Any], task: str, args: Any, options: Options) -> RunId:
    """Make a run of a task; return its id, or that of the run with the same key (see `RunId.how`).

    `args`: a dict of arguments by name, or a list of arguments by position. `conn`: in autocommit, where
    `wait_for_room` is given. Raises InputError, AlreadyEnqueued or QueueFull.
    """
    values = options.checked()
    text = check_arguments(conn, task, args)

    def send() -> RunId:
        with raise_explained():
            return statements.enqueue(conn, **values, task=task, args=text, by_name=True)

    return retry_while_full(send, seconds_to_wait(None, values))


def check_arguments(conn: Connection[Any], task: str, args: Any) -> str:
    """Return arguments as JSON. Raises InputError where they are no JSON, or do not fit the newest release of the task.

    The error's field is the path of the argument.
    """
    if not isinstance(args, dict | list):
        raise InputError(f"args: expected an object or an array, got {type(args).__name__}", "args")
    text = encode_arguments(args)
    if problem := tasks.find_misfit(conn, task, text):
        raise InputError(f"{name_args(problem)}: task {task} does not take them", misfit_path(problem))
    return text


def note_misfit(conn: Connection[Any], task: str, args: Any) -> str | None:
    """Return a note where arguments do not fit the newest release of the task, else None."""
    problem = tasks.find_misfit(conn, task, encode_arguments(args))
    return problem and f"{name_args(problem)}: the newest release of task {task} does not take them"


def name_args(problem: str) -> str:
    """Return a misfit as a message about the arguments: it begins with `args` once."""
    return problem if problem.startswith("args: ") else f"args: {problem}"


def encode_arguments(args: Any) -> str:
    """Return arguments as JSON. Raises InputError for what the database cannot store."""
    try:
        return payload.encode(args)
    except ValueError as error:
        raise InputError(f"args: {error}", "args") from None


def misfit_path(problem: str) -> str:
    """Return the path of the argument that a misfit is about, as `args.order.lines[2].price`."""
    found = MISFIT.match(problem)
    path = found[1] or found[2] if found else ""
    return f"args.{path}" if path and path != "args" else "args"


def has_arguments(conn: Connection[Any], run_id: int, args: Any, options: Options) -> bool:
    """Check whether a run was made with these arguments. True also where that cannot be known.

    `options`: those of the request. It cannot be known where the request or its task has a unique key, because the
    arguments may have been merged, or replaced by a later request; nor where the run's row was deleted, or Python
    cannot read the arguments.
    """
    try:
        run = runs.show_run(conn, run_id)
    except NotFound:
        return True
    if run["unique_key"] is not None or not isinstance(run["args"], dict | list) or run["args"] == args:
        return True
    # The row has the key only in the default scope.
    return bool(options.unique_key or options.unique_by) or has_own_key(conn, run["task"])


def has_own_key(conn: Connection[Any], task: str) -> bool:
    """Check whether a release of the task gives its runs a unique key of its own."""
    declared = [row["options"] or {} for row in summary.known_tasks(conn, task, 100)]
    return any(one.get("unique_key") or one.get("unique_by") for one in declared)


def merge_named_arguments(conn: Connection[Any], task: str, args: Any, named: Mapping[str, str]) -> Any:
    """Return the arguments with those that were given as texts: `user=7`, `name=Ann`.

    A text that is JSON stands for its value. It stays text where the newest schema of the task takes text there, and
    not the value. Raises InputError for arguments by position, for a name that is in `args` as well, and for a value
    that the database cannot store.
    """
    if not named:
        return {} if args is None else args
    given = {} if args is None else args
    if not isinstance(given, dict):
        raise InputError("arg: the arguments in --args are an array: give them by name, or all of them there", "arg")
    if twice := [name for name in named if name in given]:
        raise InputError(f"arg: {twice[0]} is in --args as well", "arg")
    values = {name: json_or_text(text) for name, text in named.items()}
    while (problem := tasks.find_misfit(conn, task, encode_arguments(given | values))) is not None:
        as_text = [
            name for name in named if values[name] != named[name] and problem.startswith((f"{name}:", f"{name}."))
        ]
        if not as_text:
            break
        values |= {name: named[name] for name in as_text}
    return given | values


def note_unknown_task(conn: Connection[Any], task: str) -> str | None:
    """Return a note if no live worker offers this task and no job has it, else None."""
    return name_hints.unknown(conn, "task", task)
