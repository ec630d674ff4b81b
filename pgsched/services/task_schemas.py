"""Describe a JSON Schema in the words of a type: `integer`, `list of text`, `"x" or "y"`, `Line`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAMES = {"string": "text", "object": "object", "array": "list", "null": "none"}
FORMATS = {"date-time": "datetime"}
LONGEST = 60  # characters of listed values
DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a task. `default`: None if it has none that JSON can hold."""

    name: str
    type: str
    required: bool
    default: Any = None


def list_arguments(schema: Mapping[str, Any]) -> list[Argument]:
    """Return the arguments that the schema of a task describes, those that are required first."""
    required = schema.get("required", ())
    found = [
        Argument(
            name, describe_type(one, schema), name in required, one.get("default") if isinstance(one, dict) else None
        )
        for name, one in schema.get("properties", {}).items()
    ]
    return sorted(found, key=lambda argument: not argument.required)


def describe_type(schema: Any, root: Mapping[str, Any], levels: int = DEEPEST) -> str:
    """Return the type of a value in words. `root`: the whole schema, for its definitions."""
    if not isinstance(schema, dict) or levels == 0:
        return "any"
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        found = root.get("$defs", {}).get(name, {})
        return describe_type(found, root, levels - 1) if "enum" in found else str(found.get("title", name))
    if "enum" in schema:
        text = " or ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
        return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(describe_type(one, root, levels - 1) for one in schema[several]))
    types = schema.get("type", [])
    found = [describe_plain(one, schema, root, levels) for one in (types if isinstance(types, list) else [types])]
    return " or ".join(found) or "any"


def describe_plain(name: str, schema: Mapping[str, Any], root: Mapping[str, Any], levels: int) -> str:
    """Return one JSON type in words, with that of its items."""
    if name == "array" and "prefixItems" in schema:
        return f"[{', '.join(describe_type(one, root, levels - 1) for one in schema['prefixItems'])}]"
    if name == "array" and isinstance(schema.get("items"), dict) and schema["items"]:
        return f"list of {describe_type(schema['items'], root, levels - 1)}"
    if name == "object" and isinstance(schema.get("additionalProperties"), dict) and "properties" not in schema:
        return f"object of {describe_type(schema['additionalProperties'], root, levels - 1)}"
    if name == "string" and "format" in schema:
        return FORMATS.get(schema["format"], str(schema["format"]))
    return NAMES.get(name, name)
