"""Arguments of a call that names its task, encoded as the task's handler takes them where this App has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pgsched.app import arguments
from pgsched.app.base import AppBase
from pgsched.core import payload
from pgsched.db.connection.connect import Connection
from pgsched.errors import InputError
from pgsched.services.runs.enqueueing import check_arguments


def split_arguments(args: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments by position, and those by name. None: none. Raises InputError for anything else."""
    if isinstance(args, str | bytes) or not isinstance(args, Mapping | Sequence | None):
        raise InputError(f"args: expected a mapping or a sequence, got {type(args).__name__}", "args")
    if args is None or isinstance(args, Mapping):
        return (), dict(args or {})
    return tuple(args), {}


def encode_untyped(args: Any) -> str:
    """Return the JSON text of arguments for a task whose parameters are not known here. Raises InputError."""
    from pgsched.app.codecs.typed_codec import to_json

    try:
        return payload.encode(args)
    except ValueError as error:
        try:
            return payload.encode(to_json(args, "args"))
        except ValueError:
            raise InputError(f"args: {error}", "args") from None


def job_arguments(app: AppBase, conn: Connection[Any], job: Mapping[str, Any], args: Any) -> Any:
    """Return the arguments of a job's run as JSON has them.

    `job`: its columns `kind` and `task`. Raises InputError, or TaskError where the App has the task, for arguments that
    do not fit the task; where the App does not have it, its newest release.
    """
    positional, named = split_arguments(args)
    known = app.tasks.get(job["task"]) if job["kind"] == "task" else None
    if known is not None:
        return json.loads(arguments.encode(known.parameters, positional, named))
    given = json.loads(encode_untyped(named if isinstance(args, Mapping) else positional))
    if job["kind"] == "task":
        check_arguments(conn, job["task"], given)
    return given
