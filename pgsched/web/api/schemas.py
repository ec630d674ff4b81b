"""JSON Schemas of the API's parameters and bodies, and checks of input against them.

Invariant: input that the OpenAPI document does not allow is refused before the database is asked anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pgsched.core import policies
from pgsched.core.model import KINDS_OF_RUNS, State
from pgsched.core.planning.backfill import MODES
from pgsched.db.queries.jobs.job_columns import SETTABLE
from pgsched.errors import InputError

Schema = dict[str, Any]
WHOLE = re.compile(r"-?[0-9]{1,19}")
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "object": (dict,), "array": (list,),
}  # fmt: skip


def text_schema(longest: int = 500, **more: Any) -> Schema:
    """Return the schema of a text of 1 to `longest` characters."""
    return {"type": "string", "minLength": 1, "maxLength": longest, **more}


def integer_schema(least: int, most: int, **more: Any) -> Schema:
    """Return the schema of a whole number from `least` to `most`."""
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def one_of(names: Any, **more: Any) -> Schema:
    """Return the schema of a text that is one of these names."""
    return {"type": "string", "enum": list(names), **more}


def nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null."""
    return {"anyOf": [schema, {"type": "null"}]}


def object_schema(required: Mapping[str, Schema], **optional: Schema) -> Schema:
    """Return the schema of an object in an answer; the object may have more fields than these."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def array_of(name: str) -> Schema:
    """Return the schema of an array of a named schema."""
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


BIG = 2**63 - 1
ID = integer_schema(1, BIG)
INSTANT = {"type": "string", "format": "date-time"}
DATE = {"type": "string", "format": "date"}
ANY: Schema = {"description": "any JSON"}
FILTERS: dict[str, Schema] = {
    "state": one_of(State),
    "job": text_schema(),
    "queue": text_schema(),
    "task": text_schema(),
    "kind": one_of(KINDS_OF_RUNS),
    "error": text_schema(),
    "tag": text_schema(),
    "worker": text_schema(),
    "since": text_schema(50),
    "until": text_schema(50),
    "ended_since": text_schema(50),
    "ended_until": text_schema(50),
}
RANGE: dict[str, Schema] = {
    "from": text_schema(50),
    "to": text_schema(50),
    "mode": one_of(MODES),
    "max_active": integer_schema(1, 1000),
    "reverse": {"type": "boolean"},
    "priority": integer_schema(0, 9),
    "dry_run": {"type": "boolean"},
}
SETTING = nullable(integer_schema(0, 1_000_000_000))
QUEUE: dict[str, Schema] = {
    "concurrency_limit": SETTING,
    "rate": nullable(text_schema(30, description="100/m")),
    "rate_burst": nullable(integer_schema(1, 10**9)),
    "fair": {"type": "boolean"},
    "ageing": nullable(text_schema(30, description="10m")),
    "max_depth": nullable(integer_schema(1, 10**9)),
    "on_full": one_of(policies.ON_FULL),
    "keep": nullable({"type": "object"}),
}
LIMIT: dict[str, Schema] = {
    "concurrency": SETTING,
    "rate": nullable(text_schema(30, description="100/m")),
    "rate_burst": nullable(integer_schema(1, 10**9)),
    "ordered": {"type": "boolean"},
    "weight": integer_schema(1, 1000),
}
LONG_TEXT = {"type": "string", "maxLength": 100_000}
KEEP = {"type": "object", "description": '{"dead": "90 days", "any": "7 days"}'}
RETENTION: dict[str, Schema] = {
    "keep": KEEP,
    "archive": {"type": "boolean"},
    "keep_minutes": text_schema(30, description="3d"),
    "keep_hours": text_schema(30, description="400d"),
    "keep_audit": text_schema(30, description="400d"),
}
COLUMN_TYPES: dict[str, Schema] = {
    "text": nullable(LONG_TEXT),
    "jsonb": ANY,
    "boolean": nullable({"type": "boolean"}),
    "timestamptz": nullable(text_schema(50)),
    "smallint": nullable(integer_schema(-(2**15), 2**15 - 1)),
    "integer": nullable(integer_schema(-(2**31), 2**31 - 1)),
    "double precision": nullable({"type": "number", "minimum": -1e300, "maximum": 1e300}),
    "interval": {
        "anyOf": [
            text_schema(100),
            {"type": "number", "minimum": 0, "maximum": 1e9, "description": "seconds"},
            {"type": "null"},
        ]
    },
    "text[]": nullable({"type": "array", "items": LONG_TEXT}),
    "bigint[]": nullable({"type": "array", "items": integer_schema(0, BIG)}),
    "integer[]": nullable({"type": "array", "items": integer_schema(-(2**31), 2**31 - 1)}),
}
COLUMNS = {name: COLUMN_TYPES[kind] for name, kind in SETTABLE.items()}


def read_query(pairs: list[tuple[str, str]], known: Mapping[str, Schema]) -> dict[str, Any]:
    """Return the parameters of a URL as values.

    Raises InputError for a parameter that is unknown, given twice or invalid.
    """
    found: dict[str, Any] = {}
    for name, given in pairs:
        if name not in known or name in found:
            raise InputError(f"{name[:50]}: {'is given twice' if name in found else 'is not a parameter'}", name[:50])
        schema = known[name]
        value: Any = given
        if schema.get("type") == "integer" and WHOLE.fullmatch(given):
            value = int(given)
        elif schema.get("type") == "boolean" and given in ("true", "false"):
            value = given == "true"
        check_value(schema, value, name)
        found[name] = value
    return found


def read_body(value: Any, known: Mapping[str, Schema], required: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a body, checked.

    Raises InputError for a field that is unknown, missing or invalid.
    """
    if not isinstance(value, dict):
        raise InputError("the body is not a JSON object")
    for name in required:
        if name not in value:
            raise InputError(f"{name}: is missing", name)
    for name, item in value.items():
        if name in known:
            check_value(known[name], item, name)
        else:
            raise InputError(f"{name[:50]}: is not a field; these are: {', '.join(known)}", name[:50])
    return value


def check_value(schema: Schema, value: Any, name: str) -> None:
    """Raise InputError unless the value fits the schema."""
    if "anyOf" in schema:
        return check_any(schema["anyOf"], value, name)
    kind = schema.get("type")
    if kind == "null":
        if value is not None:
            raise InputError(f"{name}: is not null", name)
        return None
    if kind is not None and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        raise InputError(f"{name}: is not {'an' if kind[0] in 'aio' else 'a'} {kind}", name)
    if "enum" in schema and value not in schema["enum"]:
        raise InputError(f"{name}: is not one of {', '.join(schema['enum'])}", name)
    low, high = schema.get("minimum"), schema.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        raise InputError(f"{name}: is not between {low} and {high}", name)
    if isinstance(value, str):
        check_text(schema, value, name)
    for item in value if kind == "array" else ():
        check_value(schema.get("items", ANY), item, name)
    return None


def check_any(schemas: list[Schema], value: Any, name: str) -> None:
    """Raise an InputError unless the value fits one of the schemas.

    The error is that of the first schema of the value's type, else that of the first schema.
    """
    problem: InputError | None = None
    of_type = False
    for schema in schemas:
        try:
            return check_value(schema, value, name)
        except InputError as error:
            same = isinstance(value, TYPES.get(schema.get("type", ""), ()))
            if problem is None or (same and not of_type):
                problem, of_type = error, same
    assert problem is not None
    raise problem


def check_text(schema: Schema, value: str, name: str) -> None:
    """Raise InputError for a text that is too short or too long, or that PostgreSQL cannot store."""
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        raise InputError(f"{name}: must have 1 to {schema.get('maxLength')} characters", name)
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{name}: has a character that cannot be stored", name)
