"""JSON Schemas of Python annotations: of the values that operations answer with, and of the options of an enqueue.

So a field that a dataclass gets, or an option that an enqueue gets, stands in the OpenAPI document without more work.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any

from pgsched.web.api.schemas import ANY, DATE, INSTANT, Schema, nullable, object_schema, one_of

PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: INSTANT,
    date: DATE,
    timedelta: {"type": "number", "description": "seconds"},
    Any: ANY,
}


def members(hint: Any) -> list[Any]:
    """Return the alternatives of a union, or the annotation itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [one for part in typing.get_args(hint) for one in members(part)]
    return [hint]


def schema_of(hint: Any) -> Schema:
    """Return the schema of the JSON that a value of this annotation becomes in an answer.

    Raises TypeError for an annotation that answers do not have.
    """
    alternatives = members(hint)
    if type(None) in alternatives:
        others = [one for one in alternatives if one is not type(None)]
        return (
            nullable(schema_of(others[0]))
            if len(others) == 1
            else {"anyOf": [*map(schema_of, others), {"type": "null"}]}
        )
    if len(alternatives) > 1:
        return {"anyOf": [schema_of(one) for one in alternatives]}
    if hint in PLAIN:
        return PLAIN[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return one_of(args)
    if origin in (list, tuple, Iterable):
        return {"type": "array", "items": schema_of(args[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1])}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return one_of(one.value for one in hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return dataclass_schema(hint)
    raise TypeError(f"no JSON Schema for {hint!r}")


def dataclass_schema(kind: type, **more: Schema) -> Schema:
    """Return the schema of a dataclass as `asdict` gives it; `more`: fields that the answer has besides."""
    hints = typing.get_type_hints(kind)
    return object_schema({one.name: schema_of(hints[one.name]) for one in fields(kind)} | more)
