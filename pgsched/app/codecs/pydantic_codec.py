"""The codec of annotations that hold a pydantic model; pydantic decides how their values travel."""

from __future__ import annotations

from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from pgsched.app.codecs.annotations import continue_sentence, describe
from pgsched.core import payload


class PydanticCodec:
    """The codec of one annotation, by a TypeAdapter."""

    def __init__(self, hint: Any) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(hint)
        except (PydanticUserError, TypeError, NameError) as error:
            raise ValueError(f"{describe(hint)}: pydantic refuses it: {str(error).splitlines()[0]}") from None

    def encode(self, value: Any, name: str) -> Any:
        """Return the value as JSON has it; a dict that fits the model is taken too. Raises ValueError."""
        try:
            return self._adapter.dump_python(self._adapter.validate_python(value), mode="json")
        except ValidationError as error:
            raise ValueError(describe_misfit(error, name)) from None
        except ValueError as error:
            raise ValueError(f"{name}: {str(error).splitlines()[0]}") from None

    def decode(self, value: Any, name: str) -> Any:
        """Return the value of this JSON, read as pydantic reads JSON. Raises ValueError."""
        try:
            return self._adapter.validate_json(payload.encode(value))
        except ValidationError as error:
            raise ValueError(describe_misfit(error, name)) from None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema that pydantic makes; empty where it cannot make one."""
        try:
            return self._adapter.json_schema()
        except PydanticUserError:
            return {}


def describe_misfit(error: ValidationError, name: str) -> str:
    """Return the first problem that pydantic found, behind its path."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return f"{name}{path}: {continue_sentence(first['msg'])}"
