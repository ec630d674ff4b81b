"""Compare argument values with the annotations of a handler's parameters.

Invariant: a task is registered only if JSON can carry the types of its parameters. A parameter annotated `datetime`
would get text, because arguments are stored as JSON: such a task is refused when it is registered. Annotations that
cannot be checked (a TypeVar, a Protocol, an unresolved name) are accepted.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

SIMPLE: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (float, int),
    bool: (bool,),
    list: (list, tuple),
    dict: (dict,),
    None: (type(None),),
    type(None): (type(None),),
}
ARRAYS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
OBJECTS = (dict, collections.abc.Mapping)
UNIONS = (Union, types.UnionType)


def describe(hint: Any) -> str:
    """Return the annotation as it would stand in source code."""
    if isinstance(hint, type) and not get_args(hint):
        return "None" if hint is type(None) else hint.__name__
    return str(hint).replace("typing.", "").replace("NoneType", "None")


def carries_json(hint: Any) -> bool:
    """Check whether some JSON value can fit this annotation."""
    hint, origin = unwrap_annotation(hint), get_origin(unwrap_annotation(hint))
    if origin in UNIONS:
        return any(carries_json(option) for option in get_args(hint))
    if origin in ARRAYS or origin in OBJECTS:
        return all(carries_json(item) for item in get_args(hint))
    if hint is Any or origin is not None or not isinstance(hint, type):
        return origin is not tuple and origin is not set
    if getattr(hint, "_is_protocol", False) or typing.is_typeddict(hint):
        return True
    return hint in SIMPLE or hint in ARRAYS or hint in OBJECTS or hint is object


def exact_types(hint: Any) -> frozenset[type]:
    """Return types whose every value fits the annotation. Values of other types may fit too."""
    plain = unwrap_annotation(hint)
    if plain is float:
        return frozenset({float, int})
    return frozenset({plain}) if plain in (str, int, bool) else frozenset()


def describe_mismatch(value: Any, hint: Any, path: str) -> str | None:
    """Return None if the value fits the annotation, otherwise `path: expected ..., got ...`."""
    hint, origin = unwrap_annotation(hint), get_origin(unwrap_annotation(hint))
    if origin in UNIONS:
        fits = any(describe_mismatch(value, option, path) is None for option in get_args(hint))
    elif origin is Literal:
        fits = any(value == option and type(value) is type(option) for option in get_args(hint))
    elif origin in ARRAYS or hint in ARRAYS:
        return _array(value, hint, path)
    elif origin in OBJECTS or hint in OBJECTS or typing.is_typeddict(hint):
        return _object(value, hint, path)
    else:
        fits = hint not in SIMPLE or _is_simple(value, hint)
    return None if fits else _expected(value, hint, path)


def unwrap_annotation(hint: Any) -> Any:
    """Return the annotation without Annotated, NewType and type aliases around it."""
    while True:
        if get_origin(hint) is typing.Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            # Unhashable hints (Literal of a list) cannot be looked up, so any value is accepted.
            return hint if isinstance(hint, collections.abc.Hashable) else Any


def _is_simple(value: Any, hint: Any) -> bool:
    # In Python a bool is an int; in JSON it is not.
    return isinstance(value, SIMPLE[hint]) and (hint is bool or not isinstance(value, bool))


def _expected(value: Any, hint: Any, path: str) -> str:
    shown = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else ""
    got = "None" if value is None else f"{type(value).__name__} {shown[:60]}".strip()
    return f"{path}: expected {describe(hint)}, got {got}"


def _array(value: Any, hint: Any, path: str) -> str | None:
    if not isinstance(value, (list, tuple)):
        return _expected(value, hint, path)
    items = get_args(hint)[:1]
    found = (describe_mismatch(item, items[0], f"{path}[{index}]") for index, item in enumerate(value) if items)
    return next((text for text in found if text), None)


def _object(value: Any, hint: Any, path: str) -> str | None:
    if not isinstance(value, dict):
        return _expected(value, hint, path)
    odd = next((key for key in value if not isinstance(key, str)), None)
    if odd is not None:
        return f"{path}: expected text as keys, got {type(odd).__name__} {str(odd)[:60]}"
    values = get_args(hint)[1:2]
    found = (describe_mismatch(item, values[0], f"{path}[{key!r}]") for key, item in value.items() if values)
    return next((text for text in found if text), None)
