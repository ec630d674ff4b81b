"""Find the codec of an annotation: the one place that decides how its values travel as JSON.

Invariant: what a handler gets has the type that its annotation names, or the attempt does not begin. JSON that could
mean two types of an annotation (`datetime | str`) is refused when the task is registered, not guessed.

There are three codecs:

- JSON's own types, in lists and dicts: `JsonCodec`.
- Other types (datetime, UUID, Decimal, Enum, Path, set, dataclass, TypedDict, attrs, msgspec.Struct): `TypedCodec`.
- Annotations with a pydantic model: `PydanticCodec`. pydantic decides for the whole annotation.

The libraries are imported only if an annotation needs them.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, Protocol, get_args

from pgsched.app.codecs.annotations import JsonCodec, continue_sentence, describe, is_json, unwrap_annotation


class Codec(Protocol):
    """How the values of one annotation travel. `name`: what errors call the value, such as the parameter's name."""

    def encode(self, value: Any, name: str) -> Any:
        """Return the value as JSON has it. Raises ValueError where it does not fit: `name[0].x: expected ...`."""
        ...

    def decode(self, value: Any, name: str) -> Any:
        """Return the value of this JSON. Raises ValueError where it does not fit."""
        ...

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values; empty where any value fits."""
        ...


class NoJsonType(ValueError):
    """JSON cannot carry a type of the annotation."""


def find_codec(hint: Any) -> Codec | None:
    """Return the codec of an annotation; None where nothing can be checked (no annotation, Any, a Protocol).

    Raises NoJsonType where no JSON can carry one of its types, and ValueError where JSON cannot tell its types apart.
    """
    plain = unwrap_annotation(hint)
    if plain in (Any, object) or isinstance(plain, typing.TypeVar) or getattr(plain, "_is_protocol", False):
        return None
    if is_json(hint):
        return JsonCodec(hint)
    if any(_is_pydantic(part) for part in parts(hint)):
        from pgsched.app.codecs.pydantic_codec import PydanticCodec

        return PydanticCodec(hint)
    from pgsched.app.codecs.typed_codec import TypedCodec, UnknownType

    try:
        return TypedCodec(hint)
    except UnknownType as error:
        raise NoJsonType(f"{describe(hint)} does not travel as JSON: {error}") from None
    except (TypeError, NameError, RecursionError) as error:
        raise ValueError(f"{describe(hint)} cannot travel as JSON: {continue_sentence(str(error))[:300]}") from None


def parts(hint: Any) -> Iterator[Any]:
    """Yield an annotation and everything that it is made of."""
    left = [hint]
    while left:
        one = left.pop()
        yield one
        left += get_args(one)
        if type(one).__name__ == "TypeAliasType":
            left.append(one.__value__)


def _is_pydantic(part: Any) -> bool:
    """Check whether pydantic defines this type, or this metadata of an Annotated."""
    owner = part if isinstance(part, type) else type(part)
    if owner.__module__.partition(".")[0] == "pydantic":
        return True
    return isinstance(part, type) and "__pydantic_core_schema__" in vars(part)
