"""The codec of annotations whose values are JSON as they are: text, numbers, booleans, None, lists and dicts of these.

Invariant: a value that fits its annotation travels unchanged. So nothing is converted, and most values are checked by
one comparison of types (`exact_types`).
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable
from enum import Enum
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
TEXT = frozenset({str})
Check = Callable[[Any], bool]
JSON_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", None: "null", type(None): "null"}


def describe(hint: Any) -> str:
    """Return the annotation as it would stand in source code."""
    if isinstance(hint, type) and not get_args(hint):
        return "None" if hint is type(None) else hint.__name__
    return str(hint).replace("typing.", "").replace("NoneType", "None")


def exact_types(hint: Any) -> frozenset[type]:
    """Return types whose every value fits the annotation. Values of other types may fit too."""
    plain = unwrap_annotation(hint)
    if get_origin(plain) in UNIONS:
        found = [exact_types(option) for option in get_args(plain)]
        return frozenset().union(*found) if all(found) else frozenset()
    if plain is None or plain is type(None):
        return frozenset({type(None)})
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
    elif origin in OBJECTS or hint in OBJECTS:
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
    odd = [key for key in value if not isinstance(key, str)]
    if odd:
        return f"{path}: expected text as keys, got {type(odd[0]).__name__} {str(odd[0])[:60]}"
    values = get_args(hint)[1:2]
    found = (describe_mismatch(item, values[0], f"{path}[{key!r}]") for key, item in value.items() if values)
    return next((text for text in found if text), None)


def is_json(hint: Any) -> bool:
    """Check whether every value of this annotation is JSON as it is: no conversion, and no class with fields."""
    hint, origin = unwrap_annotation(hint), get_origin(unwrap_annotation(hint))
    if origin in UNIONS or origin in ARRAYS:
        return all(is_json(option) for option in get_args(hint))
    if origin in OBJECTS:
        return is_text_or_any(get_args(hint)[0]) and is_json(get_args(hint)[1])
    if origin is Literal:
        return all(isinstance(option, str | int | None) and not isinstance(option, Enum) for option in get_args(hint))
    return hint is Any or hint in SIMPLE or hint in ARRAYS or hint in OBJECTS or hint is object


def is_text_or_any(hint: Any) -> bool:
    """Check whether a key of this annotation is text in JSON and in Python."""
    return unwrap_annotation(hint) in (str, Any)


def find_check(hint: Any) -> Check:
    """Return a function that checks whether a value fits the annotation, as `describe_mismatch` does, only faster.

    Values in arrays and objects are first compared by their types alone, which is one call for all of them.
    """
    hint, origin = unwrap_annotation(hint), get_origin(unwrap_annotation(hint))
    if origin in UNIONS:
        options = [find_check(option) for option in get_args(hint)]
        return lambda value: any(fits(value) for fits in options)
    if origin in ARRAYS or hint in ARRAYS:
        return _find_array_check(get_args(hint)[:1])
    if origin in OBJECTS or hint in OBJECTS:
        return _find_object_check(get_args(hint)[1:2])
    return lambda value: describe_mismatch(value, hint, "") is None


def _find_array_check(items: tuple[Any, ...]) -> Check:
    if not items:
        return lambda value: isinstance(value, list | tuple)
    exact, fits = exact_types(items[0]), find_check(items[0])
    return lambda value: (
        isinstance(value, list | tuple) and (exact.issuperset(map(type, value)) or all(map(fits, value)))
    )


def _find_object_check(values: tuple[Any, ...]) -> Check:
    exact, fits = (exact_types(values[0]), find_check(values[0])) if values else (frozenset(), None)

    def check(value: Any) -> bool:
        if not isinstance(value, dict) or not (TEXT.issuperset(map(type, value)) or all(map(is_text, value))):
            return False
        return fits is None or exact.issuperset(map(type, value.values())) or all(map(fits, value.values()))

    return check


def is_text(value: Any) -> bool:
    """Check whether a value is text, of whatever class."""
    return isinstance(value, str)


class JsonCodec:
    """The codec of annotations whose values are JSON as they are."""

    def __init__(self, hint: Any) -> None:
        self._hint = hint
        self._fits = find_check(hint)

    def encode(self, value: Any, name: str) -> Any:
        """Return the value unchanged. Raises ValueError where it does not fit the annotation."""
        if not self._fits(value) and (problem := describe_mismatch(value, self._hint, name)):
            raise ValueError(problem)
        return value

    decode = encode

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values."""
        return schema_of(self._hint)


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of an annotation of `is_json`."""
    hint, origin, args = unwrap_annotation(hint), get_origin(unwrap_annotation(hint)), get_args(unwrap_annotation(hint))
    if origin in UNIONS:
        return {"anyOf": [schema_of(option) for option in args]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in ARRAYS or hint in ARRAYS:
        return {"type": "array", "items": schema_of(args[0])} if args else {"type": "array"}
    if origin in OBJECTS or hint in OBJECTS:
        return {"type": "object", "additionalProperties": schema_of(args[1])} if args else {"type": "object"}
    return {"type": JSON_NAMES[hint]} if hint in JSON_NAMES else {}


def continue_sentence(text: str) -> str:
    """Return a library's sentence as the end of one of ours: in lower case at its beginning, and without backticks."""
    return (text[:1].lower() + text[1:]).replace("`", "")
