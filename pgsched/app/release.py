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

from pgsched.app.arguments import Parameters
from pgsched.app.options import INHERITED

if TYPE_CHECKING:
    from pgsched.app.task import Task

NAMELESS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
LONGEST = 60_000  # bytes of JSON (all ASCII); a longer schema is left out


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
    given = {name: option_as_json(task.values[name]) for name in INHERITED if task.values[name] is not None}
    schema = schema_of(task.parameters)
    if len(json.dumps(schema)) > LONGEST:
        schema = {}
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
    return {
        "type": "object",
        "properties": {p.name: {} for p in named if p.kind not in NAMELESS},
        "required": sorted(parameters.required - {p.name for p in named if p.kind in NAMELESS}),
        "additionalProperties": any(p.kind is Parameter.VAR_KEYWORD for p in named),
    }
