"""Check a handler's arguments where they are enqueued, and call the handler with them.

Invariant: arguments are checked against the handler's own signature. They travel as a JSON object of names. They travel
as an array only where Python has no names for them (positional-only parameters and `*args`). Each refusal is a
TaskError that names the parameter and what was expected.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from typing import Any

from pgsched.app.annotations import carries_json, describe, describe_mismatch, exact_types
from pgsched.app.run import Run
from pgsched.core import payload
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError, TaskError

RESERVED = "connection"
EMPTY = Parameter.empty
BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Parameters:
    """A handler's signature.

    `signature`: the signature without the parameter that gets the Run.
    `run_name`: the parameter that gets the Run, or None.
    `as_array`: the arguments travel as an array.
    `names`: the names, if each parameter can be passed by name (no `*args`, no `**kwargs`), otherwise None.
    `required`: the names without a default.
    `order`: the names that can also be passed by position.
    `exact`: for each name, the types whose values fit without a further check.
    """

    task: str
    full_signature: Signature
    signature: Signature
    hints: dict[str, Any]
    run_name: str | None
    as_array: bool
    names: frozenset[str] | None
    required: frozenset[str]
    order: tuple[str, ...]
    exact: dict[str, frozenset[type]]


def read_parameters(task: str, function: Callable[..., Any]) -> Parameters:
    """Return the parameters of a handler. Raises TaskError if no JSON value could ever fit one of them."""
    full, hints = inspect.signature(function), resolve_annotations(function)
    run_names = [name for name in full.parameters if is_run(hints.get(name))]
    if len(run_names) > 1:
        raise TaskError(f"task {task}: more than one parameter is annotated Run: {', '.join(run_names)}")
    arguments = [parameter for name, parameter in full.parameters.items() if name not in run_names]
    for parameter in arguments:
        check_parameter(task, parameter, hints.get(parameter.name, Any))
    names = frozenset(p.name for p in arguments)
    return Parameters(
        task=task,
        full_signature=full,
        signature=full.replace(parameters=arguments),
        hints=hints,
        run_name=run_names[0] if run_names else None,
        as_array=any(p.kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL) for p in arguments),
        names=names if all(p.kind in BY_NAME for p in full.parameters.values()) else None,
        required=frozenset(p.name for p in arguments if p.default is EMPTY),
        order=tuple(p.name for p in arguments if p.kind is Parameter.POSITIONAL_OR_KEYWORD),
        exact={p.name: exact_types(hints.get(p.name, Any)) for p in arguments},
    )


def any_arguments(**args: Any) -> None:
    """Stand in for the handler of a batched task, which gets a list of runs: take any arguments by name."""


def check_batched(task: str, function: Callable[..., Any]) -> None:
    """Raise TaskError if the handler cannot be called with one argument, the list of items."""
    try:
        inspect.signature(function).bind([])
    except TypeError:
        raise TaskError(f"task {task}: batch: its handler is called with one argument, the list of items") from None


def check_parameter(task: str, parameter: Parameter, hint: Any) -> None:
    """Raise TaskError if no caller can give this parameter a value."""
    if parameter.name == RESERVED:
        raise TaskError(f"task {task}: a parameter cannot be named {RESERVED!r}: enqueue() takes that name itself")
    if parameter.default is EMPTY and not carries_json(hint):
        expected = "take str or float and convert it in the handler"
        raise TaskError(
            f"task {task}, parameter {parameter.name!r}: {describe(hint)} does not travel as JSON; {expected}"
        )


def resolve_annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations as objects, without those that cannot be resolved (imported for type checking only)."""
    plain = inspect.unwrap(function)
    names = getattr(plain, "__globals__", {})
    found: dict[str, Any] = {}
    for name, annotation in getattr(plain, "__annotations__", {}).items():
        one = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found[name] = typing.get_type_hints(one, globalns=names, localns={})[name]
        except Exception:
            if annotation in ("Run", "pgsched.Run"):
                found[name] = Run
    return found


def is_run(hint: Any) -> bool:
    """Check whether the annotation is `Run` or `Run | None`."""
    return hint is Run or Run in typing.get_args(hint)


def encode(parameters: Parameters, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the JSON text of a call's arguments. Raises TaskError if they do not fit."""
    carried = bind_quickly(parameters, args, kwargs)
    if carried is None:
        bound = bind(parameters, args, kwargs)
        for name, value in bound.arguments.items():
            check_value(parameters, name, value)
        carried = _carried(parameters, bound)
    try:
        return payload.encode(carried)
    except ValueError as error:
        for name, value in bind(parameters, args, kwargs).arguments.items():  # find the argument at fault
            check_value(parameters, name, value)
        raise TaskError(f"task {parameters.task}: the arguments together: {error}") from None


def bind_quickly(parameters: Parameters, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Do `bind` and `check_value` at a fraction of their cost; return None if the call is not an ordinary one."""
    if parameters.names is None or len(args) > len(parameters.order):
        return None
    carried = {**dict(zip(parameters.order, args, strict=False)), **kwargs}
    if len(carried) < len(args) + len(kwargs) or not parameters.required <= carried.keys() <= parameters.names:
        return None
    exact = parameters.exact
    return carried if all(type(value) in exact[name] for name, value in carried.items()) else None


def bind(parameters: Parameters, args: Any, kwargs: Any) -> inspect.BoundArguments:
    """Bind arguments to the signature. Raises TaskError if they do not fit."""
    try:
        return parameters.signature.bind(*args, **kwargs)
    except TypeError as error:
        meant = describe_unknown(parameters, kwargs, str(error))
        raise TaskError(f"task {parameters.task}: {error}; it takes {parameters.signature}{meant}") from None


def describe_unknown(parameters: Parameters, kwargs: Iterable[str], message: str) -> str:
    """Return the end of a message about arguments that do not fit.

    It names the first argument without a parameter, unless `message` already contains it, and suggests a similar name.
    """
    known = parameters.signature.parameters
    name = next((name for name in kwargs if name not in known), None)
    if name is None:
        return ""
    return ("" if repr(name) in message else f"; it has no {name[:100]!r}") + did_you_mean(name, known)


def check_value(parameters: Parameters, name: str, value: Any) -> None:
    """Raise TaskError if an argument does not fit its annotation or cannot be encoded as JSON."""
    kind, hint = parameters.signature.parameters[name].kind, parameters.hints.get(name, Any)
    if kind is Parameter.VAR_POSITIONAL:
        hint = list[hint]  # type: ignore[valid-type]
    elif kind is Parameter.VAR_KEYWORD:
        hint = dict[str, hint]  # type: ignore[valid-type]
    problem = describe_mismatch(value, hint, name)
    if problem is None and not carries_json(hint):
        problem = f"{name}: {describe(hint)} does not travel as JSON"
    if problem is None:
        try:
            payload.encode(value)
        except ValueError as error:
            problem = f"{name}: {error}"
    if problem is not None:
        raise TaskError(f"task {parameters.task}, parameter {problem}")


def _carried(parameters: Parameters, bound: inspect.BoundArguments) -> Any:
    if parameters.as_array:
        if bound.kwargs:
            names = ", ".join(bound.kwargs)
            raise TaskError(f"task {parameters.task}: {names}: cannot travel beside positional-only arguments")
        return list(bound.args)
    carried: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        keywords = parameters.signature.parameters[name].kind is Parameter.VAR_KEYWORD
        carried.update(value if keywords else {name: value})
    return carried


def prepare_call(parameters: Parameters, function: Callable[..., Any], args: Any, run: Run | None) -> Callable[[], Any]:
    """Return the call of a handler with arguments that came as JSON. Raises TaskError if they do not fit."""
    extra = {parameters.run_name: run} if parameters.run_name else {}
    plain = parameters.names
    # Usually all arguments are given: one comparison. Otherwise, compare with the required and with all names.
    if (
        isinstance(args, dict)
        and plain is not None
        and (args.keys() == plain or parameters.required <= args.keys() <= plain)
    ):
        return partial(function, **args, **extra)  # the same result as `bind`, at a tenth of its cost
    if isinstance(args, list):
        bound = bind(parameters, args, {})
    elif isinstance(args, dict):
        bound = bind(parameters, (), args)
    else:
        raise TaskError(f"task {parameters.task}: args: expected an object or an array, got {type(args).__name__}")
    whole = inspect.BoundArguments(parameters.full_signature, {**bound.arguments, **extra})
    whole.apply_defaults()
    return partial(function, *whole.args, **whole.kwargs)


class Encoded:
    """The calls of `enqueue_many` as JSON texts; iterating raises InputError or TaskError for a call that does not fit.

    The iterable of calls is read at once. It may enqueue too, which a connection cannot do during a COPY. The calls are
    encoded while they are sent, and encoded again if they are sent again.
    """

    def __init__(self, parameters: Parameters, calls: Iterable[Mapping[str, Any] | Sequence[Any]]) -> None:
        self._parameters = parameters
        self._calls = list(calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[str]:
        for number, call in enumerate(self._calls):
            if isinstance(call, str | bytes) or not isinstance(call, Mapping | Sequence):
                kind = type(call).__name__
                raise InputError(f"calls: number {number} is of type {kind}; expected a mapping or a sequence", "calls")
            named = isinstance(call, Mapping)
            yield encode(self._parameters, () if named else tuple(call), dict(call) if named else {})
