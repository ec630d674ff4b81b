"""`POST /runs`: a task, its arguments, and the options that `enqueue()` has in Python.

Invariant: the fields and their types are those of `OptionKeywords`. An option that Python gets is one here, too.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from pgsched.app.options import OptionKeywords, Options
from pgsched.app.rules.unique_keys import UNTIL, unknown_scope
from pgsched.core.input_values import parse_instant, parse_option_duration
from pgsched.db.connection.connect import Connection
from pgsched.errors import InputError
from pgsched.services.runs import enqueueing
from pgsched.web.api.annotations import members
from pgsched.web.api.errors import KeyReused
from pgsched.web.api.schemas import ID, Schema, nullable, one_of, text_schema

# The server does not wait for room in a queue: it answers 429. The key of a request is a header.
LEFT_OUT = ("wait_for_room", "idempotency_key")
SCOPE = re.compile(r"(\w+)\((.+)\)")
HINTS: dict[str, Any] = {
    name: hint for name, hint in typing.get_type_hints(OptionKeywords).items() if name not in LEFT_OUT
}


def option_schema(hint: Any) -> Schema:
    """Return the schema of an option, by its annotation. Options are checked further when they are used."""
    alternatives = [one for one in members(hint) if one is not type(None)]
    found: list[Schema] = []
    if timedelta in alternatives:
        text = text_schema(100, description="90s, 10m, 1h 30m, 10 minutes")
        found += [{"type": "number", "description": "seconds"}, text]
    if datetime in alternatives:
        found.append({"type": "string", "maxLength": 50, "description": "2031-05-01T02:00:00Z"})
    scopes = scope_classes(alternatives)
    words = [word for one in alternatives if typing.get_origin(one) is typing.Literal for word in typing.get_args(one)]
    if scopes:
        known = ", ".join([*words, *(f"{name}(1h)" for name in scopes)])
        found.append(text_schema(100, description=known))
    elif words:
        found.append(one_of(words))
    found += [{"type": "boolean"}] if bool in alternatives else []
    if timedelta not in alternatives:
        plain = {str: text_schema(500), int: {"type": "integer"}, float: {"type": "number"}}
        found += [schema for cls, schema in plain.items() if cls in alternatives]
    items = [typing.get_args(one)[0] for one in alternatives if typing.get_origin(one) in (list, Iterable)]
    found += [{"type": "array", "items": text_schema(500) if item is str else ID} for item in items]
    return nullable(found[0]) if len(found) == 1 else {"anyOf": [*found, {"type": "null"}]}


def scope_classes(alternatives: list[Any]) -> dict[str, type]:
    """Return the classes of unique scopes with a period, such as `bucket`, by their names in a body."""
    return {
        one.__name__.lower(): one
        for one in alternatives
        if isinstance(one, type) and is_dataclass(one) and [field.name for field in fields(one)] == ["period_s"]
    }


BODY: dict[str, Schema] = {
    "task": text_schema(1000),
    "args": {
        "anyOf": [{"type": "object"}, {"type": "array"}],
        "description": "arguments by name, or by position; none: {}",
    },
    **{name: option_schema(hint) for name, hint in HINTS.items()},
}


def read_options(given: Mapping[str, Any], key: str | None) -> Options:
    """Return the options that a body and the header `Idempotency-Key` give.

    Raises InputError for a text that is no length of time, instant or scope.
    """
    values = {name: read_option(name, given[name]) for name in HINTS if given.get(name) is not None}
    return Options.named({**values, "idempotency_key": key})


def read_option(name: str, value: Any) -> Any:
    """Return the value of an option as Python takes it. Raises InputError."""
    alternatives = members(HINTS[name])
    if not isinstance(value, str):
        return value
    scopes = scope_classes(alternatives)
    if scopes:
        if value in UNTIL:
            return value
        found = SCOPE.fullmatch(value)
        if found is None or found[1] not in scopes:
            raise unknown_scope(name, value)
        return scopes[found[1]](parse_option_duration(name, found[2]).total_seconds())
    if timedelta in alternatives:
        try:
            return parse_option_duration(name, value)
        except InputError:
            if datetime not in alternatives:
                raise
    return parse_instant(name, value, ahead=True) if datetime in alternatives else value


def read_key(header: str | None) -> str | None:
    """Return the key in the header `Idempotency-Key`: bare, or in quotes as the draft of the IETF writes it."""
    if header is not None and len(header) > 2 and header[0] == header[-1] == '"':
        return re.sub(r"\\(.)", r"\1", header[1:-1])
    return header


def enqueue_run(conn: Connection[Any], given: Mapping[str, Any]) -> Any:
    """Make a run of a task; return its id, how it was got, and notes.

    Raises KeyReused where the idempotency key belongs to another request.
    """
    task, args, header = given["task"], given.get("args", {}), "Idempotency-Key"
    options = read_options(given, read_key(given.get("idempotency_key")))
    try:
        run = enqueueing.enqueue_by_name(conn, task, args, options)
    except InputError as error:
        if error.field != "idempotency_key":
            raise
        why = str(error).replace("idempotency_key", header, 1)
        raise (KeyReused if "was used for run" in why else InputError)(why, header) from None
    if run.how == "repeated" and not enqueueing.has_arguments(conn, run, args, options):
        raise KeyReused(f"{header}: it was used for run {run}, with other arguments", header)
    note = enqueueing.note_unknown_task(conn, task)
    return {"id": int(run), "how": run.how, "notes": [] if note is None else [note]}
