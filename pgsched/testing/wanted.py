"""`Wanted`: the run that an assertion asks for, and how another run differs from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import Parameter
from typing import Any

from pgsched.app import arguments
from pgsched.app.task import Task
from pgsched.core import payload
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError, TaskError
from pgsched.testing.found import Enqueued

Args = Mapping[str, Any] | Sequence[Any] | None
NOTHING = object()


class Wanted:
    """A run that an assertion asks for.

    `args`: the forms that the arguments may have in JSON; a run that has one of them fits.
    `at`, `near`: when the run is due, and how far it may be from that.
    `columns`: other values of the run.
    """

    def __init__(
        self,
        task: Task[..., Any],
        args: Args,
        at: datetime | None,
        within: float | timedelta,
        columns: Mapping[str, Any],
    ) -> None:
        if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
            raise InputError(f"at: expected a datetime with a time zone, got {at!r}", "at")
        self.task = task
        self.args = json_forms(task, args)
        self.at = at
        self.near = within if isinstance(within, timedelta) else timedelta(seconds=within)
        self.columns = {name: list(value) if isinstance(value, tuple) else value for name, value in columns.items()}
        self._shown = {"args": args, "at": at.isoformat() if at else None, **columns}

    def differences(self, run: Enqueued) -> list[str]:
        """Return in which values the run differs; nothing if it fits."""
        found = differences_of_args(run.args, self.args)
        if self.at is not None and abs(run.at - self.at) > self.near:
            found.append(f"at is {run.at.isoformat()}")
        found += [
            f"{name} is {getattr(run, name)!r}" for name, value in self.columns.items() if getattr(run, name) != value
        ]
        return found

    def __str__(self) -> str:
        """Return the asked values for a message: nothing, or words that end in a space."""
        words = ", ".join(f"{name}={value!r}" for name, value in self._shown.items() if value is not None)
        return f"with {words} " if words else ""


@dataclass(frozen=True, slots=True)
class Whole:
    """All arguments of a run, as JSON has them."""

    args: Any


def json_forms(task: Task[..., Any], args: Args) -> Mapping[str, list[Any]] | Whole:
    """Return for each named argument the JSON values that fit it, or all arguments for a list.

    A value fits as `enqueue` takes it (a date), and as JSON has it ("2026-03-28"). Raises InputError for a name that
    the task has no argument for; TaskError for a value that the task could never get: refuting it would prove nothing.
    """
    parameters = task.parameters
    if args is None:
        return {}
    if not isinstance(args, Mapping):
        if isinstance(args, str | bytes) or not isinstance(args, Sequence):
            raise InputError(f"args: expected a mapping or a sequence, got {type(args).__name__}", "args")
        return Whole(json.loads(arguments.encode(parameters, tuple(args), {})))
    known = parameters.signature.parameters
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
    for name in args:
        if name not in known and not takes_any:
            raise InputError(f"args: task {task.name} has no argument {name!r}{did_you_mean(str(name), known)}", "args")
    return {name: forms_of(parameters, name, value) for name, value in args.items()}


def forms_of(parameters: arguments.Parameters, name: str, value: Any) -> list[Any]:
    """Return the JSON values that fit an argument that is given as this value."""
    if name not in parameters.codecs:
        return [as_json(parameters, name, value)]
    try:
        carried = arguments.convert(parameters, name, value, arguments.encode_value)
        return [as_json(parameters, name, carried), value]
    except TaskError as error:
        if is_json_of(parameters, name, value):
            return [value]
        raise error from None


def is_json_of(parameters: arguments.Parameters, name: str, value: Any) -> bool:
    """Check whether a value is what a run's row may hold for an argument."""
    try:
        arguments.convert(parameters, name, value, arguments.decode_value)
    except TaskError:
        return False
    return True


def as_json(parameters: arguments.Parameters, name: str, value: Any) -> Any:
    """Return the value as JSON carries it: a tuple becomes a list. Raises TaskError if it is not JSON."""
    try:
        return json.loads(payload.encode(value))
    except ValueError as error:
        raise TaskError(f"task {parameters.task}, parameter {name!r}: {error}") from None


def differences_of_args(args: Any, wanted: Mapping[str, list[Any]] | Whole) -> list[str]:
    """Return in which arguments a run differs."""
    if isinstance(wanted, Whole):
        return [] if args == wanted.args else [f"args are {args!r}"]
    if not isinstance(args, Mapping):
        return [f"args are {args!r}"] if wanted else []
    found = []
    for name, forms in wanted.items():
        value = args.get(name, NOTHING)
        if value is NOTHING:
            found.append(f"args has no {name!r}")
        elif all(value != form for form in forms):
            found.append(f"args[{name!r}] is {value!r}")
    return found
