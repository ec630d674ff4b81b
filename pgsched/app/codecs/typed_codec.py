"""The codec of annotations with types that JSON does not have, by msgspec.

Invariant: a value that is sent comes back as an equal value of the same type, or it is refused where it is sent.

Types travel as msgspec writes them: instants, dates and times as RFC 3339 has them, durations as ISO 8601 has them,
Decimal and UUID as text, bytes as base64, sets as arrays, an Enum as its value, classes with fields as objects. A Path
is its text. Source: https://jcristharif.com/msgspec/supported-types.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec import inspect as shapes

from pgsched.app.codecs.annotations import continue_sentence

if TYPE_CHECKING:
    from pgsched.app.codecs.pydantic_codec import PydanticCodec

PYTHON_NAMES = {"decimal": "Decimal", "duration": "timedelta", "uuid": "UUID", "array": "list", "object": "dict"}
# Subclasses of the types that msgspec knows travel as these: freezegun's datetime, pandas' Timestamp, RunId.
BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int),
    (float, float),
    (datetime, lambda value: datetime.fromisoformat(datetime.isoformat(value))),
    (date, lambda value: date(value.year, value.month, value.day)),
    (time, lambda value: time.fromisoformat(time.isoformat(value))),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
    (UUID, lambda value: UUID(int=value.int)),
    (bytes, bytes),
    (PurePath, str),
)
EXPECTED = re.compile(r"Expected `([^`]+)`")


class UnknownType(Exception):
    """A type that neither msgspec nor this module knows."""


class TypedCodec:
    """The codec of one annotation.

    Raises UnknownType for a type that JSON cannot carry, TypeError where JSON cannot tell the types of a union apart,
    NameError where a field's annotation cannot be resolved.
    """

    def __init__(self, hint: Any) -> None:
        msgspec.json.Decoder(hint)  # raises for unions of types that look alike in JSON, also in fields
        for kind in custom_types(shapes.type_info(hint)):
            if not issubclass(kind, PurePath) and not is_model(kind):
                raise UnknownType(f"take str or float for {kind.__name__}, and convert it in the handler")
        self._hint = hint

    def encode(self, value: Any, name: str) -> Any:
        """Return the value as JSON has it. Raises ValueError where it would not come back as it is."""
        built = to_json(value, name)
        try:
            decoded = self.decode(built, name)
        except ValueError:
            if built != value:
                self._refuse_type(value, name)
            raise
        if decoded != value:
            refuse_changes(value, decoded, name)
        return built

    def decode(self, value: Any, name: str) -> Any:
        """Return the value of this JSON. Raises ValueError where it does not fit."""
        try:
            return msgspec.convert(value, self._hint, str_keys=True, dec_hook=decode_other)
        except msgspec.ValidationError as error:
            raise ValueError(describe_misfit(error, name)) from None

    def _refuse_type(self, value: Any, name: str) -> None:
        """Raise ValueError where the value itself has another type, for `expected datetime, got date`."""
        try:
            msgspec.convert(value, self._hint, dec_hook=decode_other)
        except msgspec.ValidationError as error:
            raise ValueError(describe_misfit(error, name)) from None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values; types that msgspec does not know are text."""
        return msgspec.json.schema(self._hint, schema_hook=schema_of_other)


def to_json(value: Any, name: str) -> Any:
    """Return any value that msgspec can encode as JSON has it. Raises ValueError for other values."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_other)
    except (TypeError, ValueError, NotImplementedError, RecursionError, OverflowError) as error:
        raise ValueError(f"{name}: {continue_sentence(str(error))}") from None


def encode_other(value: Any) -> Any:
    """Return a value that msgspec does not know as one that it knows. Raises NotImplementedError for any other."""
    for base, convert in BASES:
        if isinstance(value, base):
            return convert(value)
    if is_model(type(value)):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"{type(value).__name__} is not a type that JSON can carry")


def decode_other(kind: Any, value: Any) -> Any:
    """Return the value of a type that msgspec does not know. Raises ValueError, which msgspec puts behind its path."""
    if issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise ValueError(  # noqa: TRY004  msgspec puts a ValueError behind its path
                f"Expected `Path`, got `{type(value).__name__}`"
            )
        return kind(value)
    if is_model(kind):
        return codec_of_model(kind).decode(value, kind.__name__)
    raise NotImplementedError(kind.__name__)


@cache
def codec_of_model(kind: type) -> PydanticCodec:
    """Return the codec of a pydantic model, built once: that takes pydantic much longer than reading a value."""
    from pgsched.app.codecs.pydantic_codec import PydanticCodec

    return PydanticCodec(kind)


def schema_of_other(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a type that msgspec does not know."""
    if is_model(kind):
        return {"type": "object", "title": kind.__name__}
    return {"type": "string", "format": "path"} if issubclass(kind, PurePath) else {}


def is_model(kind: type) -> bool:
    """Check whether this is a pydantic model."""
    return hasattr(kind, "__pydantic_core_schema__") and hasattr(kind, "model_dump")


def custom_types(shape: shapes.Type) -> Iterator[type]:
    """Yield the types in this shape that msgspec does not know."""
    seen: set[int] = set()
    left: list[Any] = [shape]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, shapes.CustomType):
            yield one.cls
        elif isinstance(one, tuple):
            left += one
        elif isinstance(one, shapes.Type | shapes.Field):
            left += (getattr(one, name) for name in one.__struct_fields__)


def refuse_changes(value: Any, decoded: Any, path: str) -> None:
    """Raise ValueError where a value came back as another one: a datetime as text, where the annotation is Any.

    JSON values may change type (text becomes a datetime, a list a set): the annotation says so, and they were checked.
    """
    if isinstance(value, str | int | float | None) or value == decoded:
        return
    if isinstance(value, dict) and isinstance(decoded, dict):
        for key, one in value.items():
            if key not in decoded and not isinstance(key, str):
                raise ValueError(f"{path}: expected text as keys, got {type(key).__name__} {str(key)[:60]}")
            refuse_changes(one, decoded.get(key, one), f"{path}[{key!r}]")
    elif isinstance(value, list | tuple) and isinstance(decoded, list | tuple) and len(value) == len(decoded):
        for index, (one, other) in enumerate(zip(value, decoded, strict=True)):
            refuse_changes(one, other, f"{path}[{index}]")
    elif not isinstance(value, type(decoded) | dict | list | tuple | set | frozenset):
        raise ValueError(f"{path}: expected {type(decoded).__name__}, got {type(value).__name__}")


def describe_misfit(error: msgspec.ValidationError, name: str) -> str:
    """Return what msgspec found, behind its path: `lines[2].price: expected Decimal, got null`."""
    text, _, place = str(error).partition(" - at `")
    place = place.rstrip("`")
    path = f"a key of {name}" if place.startswith("key") else name + place.removeprefix("$")
    text = EXPECTED.sub(lambda found: f"expected {in_python(found[1])}", text)
    return f"{path}: {continue_sentence(text)}"


def in_python(names: str) -> str:
    """Return the name of a type, or of a union, as Python writes it."""
    return " | ".join(PYTHON_NAMES.get(name, name) for name in names.replace("null", "None").split(" | "))
