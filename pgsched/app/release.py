"""The release of a task: the options and arguments of its code, as a worker registers them in pgsched.tasks.

Invariant: what is registered follows from the task's code alone. So two processes of one release register the same, and
code that changes neither options nor arguments is the same release.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from pgsched.app.arguments import Parameters, encoded_defaults
from pgsched.app.options import REGISTERED

if TYPE_CHECKING:
    from pgsched.app.task import Task

NAMELESS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
LONGEST = 60_000  # bytes of JSON (all ASCII); of a longer schema only `names_and_defaults` are registered


@dataclass(frozen=True, slots=True)
class TaskRelease:
    """A task as it is registered.

    `release`: a hash of options and schema, different for each release.
    `options`: the options that its runs take.
    `schema`: its arguments as JSON Schema.
    """

    task: str
    release: str
    options: dict[str, Any]
    schema: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the release as the database takes it."""
        return {name: getattr(self, name) for name in self.__slots__}


def releases(tasks: Iterable[Task[..., Any]]) -> list[TaskRelease]:
    """Return the releases of these tasks, by name."""
    return sorted((release_of(task) for task in tasks), key=lambda release: release.task)


def release_of(task: Task[..., Any]) -> TaskRelease:
    """Return the release of one task."""
    named = {**{name: task.values[name] for name in REGISTERED}, "unique_key": task.values["unique_template"]}
    given = {name: option_as_json(value) for name, value in named.items() if value is not None}
    given |= {} if task.limit is None else task.limit.as_options()
    schema = schema_of(task.parameters)
    if len(json.dumps(schema)) > LONGEST:
        schema = names_and_defaults(schema)
    text = json.dumps([given, schema], sort_keys=True)
    return TaskRelease(task.name, hashlib.sha256(text.encode()).hexdigest()[:16], given, schema)


def option_as_json(value: Any) -> Any:
    """Return an option as JSON has it: a duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def schema_of(parameters: Parameters) -> dict[str, Any]:
    """Return a JSON Schema of the arguments by name; arguments without names are only described as an array."""
    if parameters.as_array:
        return {"type": "array"}
    named = parameters.signature.parameters.values()
    definitions: dict[str, Any] = {}
    properties = {p.name: schema_of_parameter(parameters, p, definitions) for p in named if p.kind not in NAMELESS}
    for name, default in encoded_defaults(parameters).items():
        properties[name]["default"] = default
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(parameters.required - {p.name for p in named if p.kind in NAMELESS}),
        "additionalProperties": parameters.ignores_extra or any(p.kind is Parameter.VAR_KEYWORD for p in named),
        **({"$defs": definitions} if definitions else {}),
    }


def names_and_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what unique keys need of a schema that is too long; {} if that is too long as well.

    SQL checks no arguments by it, because it does not know `$comment`.
    """
    properties = {
        name: {"default": property_["default"]} if "default" in property_ else {}
        for name, property_ in schema.get("properties", {}).items()
    }
    short = {"$comment": "the whole schema is too long", "properties": properties}
    return short if len(json.dumps(short)) <= LONGEST else {}


def schema_of_parameter(parameters: Parameters, parameter: Parameter, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of one parameter; move what it defines to `definitions`."""
    codec = parameters.codecs.get(parameter.name)
    schema = {} if codec is None else codec.schema()
    defined = schema.get("$defs", {})
    if any(definitions.get(name, one) != one for name, one in defined.items()):  # another class has the same name
        names = {name: f"{parameter.name}.{name}" for name in defined}
        schema = renamed_references(schema, {f"#/$defs/{old}": f"#/$defs/{new}" for old, new in names.items()})
        defined = {names[name]: one for name, one in schema["$defs"].items()}
    definitions.update(defined)
    schema.pop("$defs", None)
    return schema


def renamed_references(schema: Any, names: dict[str, str]) -> Any:
    """Return the schema with its references to definitions under their new names."""
    if isinstance(schema, dict):
        return {key: renamed_references(value, names) for key, value in schema.items()}
    if isinstance(schema, list):
        return [renamed_references(value, names) for value in schema]
    return names.get(schema, schema) if isinstance(schema, str) else schema
