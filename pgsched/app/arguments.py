"""Check and encode a handler's arguments where they are enqueued; decode them, and call the handler with them.

Invariant: arguments are checked against the handler's own signature, where they are enqueued and before each attempt.
They travel as a JSON object of names. They travel as an array only where Python has no names for them (positional-only
parameters and `*args`). Each refusal is a TaskError that names the parameter and what was expected.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import Parameter, Signature
from typing import Any

from pgsched.app.codecs.annotations import exact_types
from pgsched.app.codecs.codec import Codec, NoJsonType, find_codec
from pgsched.app.options import OPTIONS
from pgsched.app.run import Run
from pgsched.core import payload
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError, TaskError

RESERVED = "connection"
EMPTY = Parameter.empty
Decode = Callable[[dict[str, Any]], dict[str, Any] | None]
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
    `exact`: for each name, the types whose values fit and travel unchanged.
    `codecs`: for each name whose values are checked, how they travel.
    `ignores_extra`: arguments that come without a parameter for them are dropped.
    """

    task: str
    full_signature: Signature
    signature: Signature
    run_name: str | None
    as_array: bool
    names: frozenset[str] | None
    required: frozenset[str]
    order: tuple[str, ...]
    exact: dict[str, frozenset[type]]
    codecs: dict[str, Codec]
    ignores_extra: bool


def read_parameters(task: str, function: Callable[..., Any], *, ignores_extra: bool = False) -> Parameters:
    """Return the parameters of a handler.

    Raises TaskError if no JSON value could ever fit one of them, or if JSON cannot tell the types of one apart.
    """
    full, hints = inspect.signature(function), resolve_annotations(function)
    run_names = [name for name in full.parameters if is_run(hints.get(name))]
    if len(run_names) > 1:
        raise TaskError(f"task {task}: more than one parameter is annotated Run: {', '.join(run_names)}")
    arguments = [parameter for name, parameter in full.parameters.items() if name not in run_names]
    codecs = {p.name: find_parameter_codec(task, p, hints.get(p.name, Any)) for p in arguments}
    names = frozenset(p.name for p in arguments)
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in arguments)
    return Parameters(
        task=task,
        full_signature=full,
        signature=full.replace(parameters=arguments),
        run_name=run_names[0] if run_names else None,
        as_array=any(p.kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL) for p in arguments),
        names=names if all(p.kind in BY_NAME for p in full.parameters.values()) else None,
        required=frozenset(p.name for p in arguments if p.default is EMPTY),
        order=tuple(p.name for p in arguments if p.kind is Parameter.POSITIONAL_OR_KEYWORD),
        exact={p.name: exact_types(hints.get(p.name, Any)) | none_of_default(p) for p in arguments},
        codecs={name: codec for name, codec in codecs.items() if codec is not None},
        ignores_extra=ignores_extra and not takes_any,
    )


def none_of_default(parameter: Parameter) -> frozenset[type]:
    """Return the type of None if None is the parameter's default; it fits whatever the annotation is."""
    return frozenset({type(None)}) if parameter.default is None else frozenset()


def any_arguments(**args: Any) -> None:
    """Stand in for the handler of a batched task, which gets a list of runs: take any arguments by name."""


def check_batched(task: str, function: Callable[..., Any]) -> None:
    """Raise TaskError if the handler cannot be called with one argument, the list of items."""
    try:
        inspect.signature(function).bind([])
    except TypeError:
        raise TaskError(f"task {task}: batch: its handler is called with one argument, the list of items") from None


def find_parameter_codec(task: str, parameter: Parameter, hint: Any) -> Codec | None:
    """Return how the values of this parameter travel; None where they are not checked.

    Raises TaskError if no caller can give the parameter a value, or if JSON cannot tell the types of its values apart.
    """
    if parameter.name == RESERVED:
        raise TaskError(f"task {task}: a parameter cannot be named {RESERVED!r}: enqueue() takes that name itself")
    try:
        return find_codec(hint)
    except NoJsonType as error:
        if parameter.default is EMPTY:
            raise TaskError(f"task {task}, parameter {parameter.name!r}: {error}") from None
        return RefusedByDefault(str(error))
    except ValueError as error:
        raise TaskError(f"task {task}, parameter {parameter.name!r}: {error}") from None


class RefusedByDefault:
    """The codec of a parameter whose type JSON cannot carry; callers leave it out, because it has a default."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def encode(self, value: Any, name: str) -> Any:
        """Raise ValueError: no value travels."""
        raise ValueError(f"{name}: {self._reason}")

    decode = encode

    def schema(self) -> dict[str, Any]:
        """Return a schema that no value fits."""
        return {"not": {}}


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
            bound.arguments[name] = convert(parameters, name, value, encode_value)
        carried = _carried(parameters, bound)
    try:
        return payload.encode(carried)
    except ValueError as error:
        for name, value in bind(parameters, args, kwargs).arguments.items():  # find the argument at fault
            convert(parameters, name, value, encode_alone)
        raise TaskError(f"task {parameters.task}: the arguments together: {error}") from None


@cache
def find_result_codec(function: Callable[..., Any]) -> Codec | None:
    """Return the codec of a handler's return annotation; None where there is none, or JSON cannot carry it."""
    try:
        return find_codec(resolve_annotations(function).get("return", Any))
    except ValueError:
        return None


def bind_quickly(parameters: Parameters, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Do `bind` and `convert` at a fraction of their cost; return None if the call is not an ordinary one."""
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

    It names the first argument without a parameter, unless `message` already contains it, and suggests a similar name,
    or `task.options` for the name of an option.
    """
    known = parameters.signature.parameters
    name = next((name for name in kwargs if name not in known), None)
    if name is None:
        return ""
    hint = f"; as an option of the run: task.options({name}=...)" if name in OPTIONS else did_you_mean(name, known)
    return ("" if repr(name) in message else f"; it has no {name[:100]!r}") + hint


def convert(parameters: Parameters, name: str, value: Any, how: Callable[[Codec | None, Any, str], Any]) -> Any:
    """Return what `how` makes of an argument; of each of them for `*args` and `**kwargs`. Raises TaskError."""
    kind, codec = parameters.signature.parameters[name].kind, parameters.codecs.get(name)
    if value is None and type(None) in parameters.exact[name]:
        return None
    try:
        if kind is Parameter.VAR_POSITIONAL:
            return tuple(how(codec, one, f"{name}[{index}]") for index, one in enumerate(value))
        if kind is Parameter.VAR_KEYWORD:
            return {key: how(codec, one, f"{name}[{key!r}]") for key, one in value.items()}
        return how(codec, value, name)
    except ValueError as error:
        raise TaskError(f"task {parameters.task}, parameter {error}") from None


def encode_value(codec: Codec | None, value: Any, name: str) -> Any:
    """Return an argument as JSON has it. Raises ValueError where it does not fit its annotation."""
    return value if codec is None else codec.encode(value, name)


def encode_alone(codec: Codec | None, value: Any, name: str) -> Any:
    """Encode one argument, to find the one at fault. Raises ValueError where it is not JSON."""
    try:
        return payload.encode(encode_value(codec, value, name))
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(name) else f"{name}: {text}") from None


def decode_value(codec: Codec | None, value: Any, name: str) -> Any:
    """Return an argument as the handler gets it. Raises ValueError where it does not fit its annotation."""
    return value if codec is None else codec.decode(value, name)


def decode_by_name(parameters: Parameters, args: dict[str, Any]) -> dict[str, Any]:
    """Return arguments by name as the handler gets them: the same dict if none of them changes. Raises TaskError."""
    exact, changed = parameters.exact, {}
    for name in parameters.codecs:
        if name in args and type(args[name]) not in exact[name]:
            changed[name] = convert(parameters, name, args[name], decode_value)
    return {**args, **changed} if changed else args


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


def encoded_defaults(parameters: Parameters) -> dict[str, Any]:
    """Return the defaults of the arguments as they would travel, by name, without those that JSON cannot carry."""
    found: dict[str, Any] = {}
    for parameter in parameters.signature.parameters.values():
        if parameter.default is not EMPTY:
            try:
                value = convert(parameters, parameter.name, parameter.default, encode_value)
                payload.encode(value)
            except (TaskError, ValueError):
                continue
            found[parameter.name] = value
    return found


def find_decoder(parameters: Parameters) -> Decode | None:
    """Return a function that decodes arguments by name, and returns None for a misfit; None if nothing is checked."""
    if not parameters.codecs:
        return None

    def decode(args: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return decode_by_name(parameters, args)
        except TaskError:
            return None

    return decode


def prepare_call(parameters: Parameters, function: Callable[..., Any], args: Any, run: Run | None) -> Callable[[], Any]:
    """Return the call of a handler with arguments that came as JSON. Raises TaskError if they do not fit."""
    extra = {parameters.run_name: run} if parameters.run_name else {}
    plain = parameters.names
    if parameters.ignores_extra and isinstance(args, dict):
        args = {name: value for name, value in args.items() if name in parameters.signature.parameters}
    # Usually all arguments are given: one comparison. Otherwise, compare with the required and with all names.
    if (
        isinstance(args, dict)
        and plain is not None
        and (args.keys() == plain or parameters.required <= args.keys() <= plain)
    ):
        return partial(function, **decode_by_name(parameters, args), **extra)  # as `bind`, at a tenth of its cost
    if isinstance(args, list):
        bound = bind(parameters, args, {})
    elif isinstance(args, dict):
        bound = bind(parameters, (), args)
    else:
        raise TaskError(f"task {parameters.task}: args: expected an object or an array, got {type(args).__name__}")
    decoded = {name: convert(parameters, name, value, decode_value) for name, value in bound.arguments.items()}
    whole = inspect.BoundArguments(parameters.full_signature, {**decoded, **extra})
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
