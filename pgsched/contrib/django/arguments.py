"""Arguments of Django's tasks on their way through a run.

They travel by name, as pgsched's own do: {"user": 7}. So unique keys, limits and producers in SQL can use the names.
Where Python has no names for them (`*args`, parameters before `/`), those by position travel as the list "*".

Invariant: values are JSON, and arrive as they were enqueued: annotations convert nothing here, as in Django's backends.

Source: "Enqueueing Tasks" in docs.djangoproject.com/en/stable/topics/tasks/.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from pgsched.app.run import Run
from pgsched.app.signals import Discard
from pgsched.errors import TaskError

BY_POSITION = "*"
NAMELESS = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)
TAKEN = ("connection",)  # names that `Task` of pgsched refuses for parameters


class Misfit(Discard, TaskError):
    """The arguments of a run do not fit the function. It is not tried again: the next attempt has the same ones."""


def pack(task: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments as the run has them. Raises TypeError where they do not fit the function."""
    signature = inspect.signature(task.func)
    before = (None,) if task.takes_context else ()
    try:
        bound = signature.bind(*before, *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{task.module_path}: {error}") from None
    if BY_POSITION in kwargs:
        raise TypeError(f"{task.module_path}: an argument cannot be named {BY_POSITION!r}")
    if any(parameter.kind in NAMELESS for parameter in parameters_of(task)) and args:
        return {BY_POSITION: args, **kwargs}
    names = [*bound.signature.parameters][len(before) :]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def by_name(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments as the run has them, from those with which a handler is called (see `give_signature`)."""
    return {**{one.name: value for one, value in zip(parameters_of(task), args, strict=False)}, **kwargs}


def unpack(task: Any, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return a run's arguments by position, and those by name. Raises Misfit where they do not fit the function."""
    named = dict(given)
    args = named.pop(BY_POSITION, [])
    if not isinstance(args, list):
        raise Misfit(f"task {task.module_path}: {BY_POSITION!r}: expected a list of arguments")
    before = (None,) if task.takes_context else ()
    try:
        inspect.signature(task.func).bind(*before, *args, **named)
    except TypeError as error:
        raise Misfit(f"task {task.module_path}: {error}") from None
    return args, named


def split_arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of any run as `TaskResult` has them: by position, and by name."""
    if not isinstance(given, dict):
        return (given if isinstance(given, list) else []), {}
    args = given.get(BY_POSITION)
    if not isinstance(args, list):
        return [], given
    return args, {name: value for name, value in given.items() if name != BY_POSITION}


def parameters_of(task: Any) -> list[Parameter]:
    """Return the parameters of a task's function that its callers give: without the context."""
    return [*inspect.signature(task.func).parameters.values()][int(task.takes_context) :]


def give_signature(handler: Callable[..., Any], task: Any) -> None:
    """Give a handler the name and the parameters of a task's function, so that pgsched checks and shows those.

    The types are left out: pgsched would convert values by them. A function whose arguments travel by position keeps
    the handler's own parameters, which take everything.
    """
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(handler, name, getattr(task.func, name))
    parameters = [one.replace(annotation=Parameter.empty) for one in parameters_of(task)]
    if any(one.kind in NAMELESS or one.name in TAKEN for one in parameters):
        parameters = [Parameter("arguments", Parameter.VAR_KEYWORD)]
    run_name = unused_name({one.name for one in parameters})
    run = Parameter(run_name, Parameter.POSITIONAL_ONLY)
    handler.__annotations__ = {run_name: Run}
    handler.__signature__ = Signature([run, *parameters])  # type: ignore[attr-defined]


def unused_name(names: set[str]) -> str:
    """Return a name for the parameter that gets the Run, which no other parameter has."""
    name = "run"
    while name in names:
        name = f"_{name}"
    return name
