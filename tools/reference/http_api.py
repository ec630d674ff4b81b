"""Generate docs/reference/http-api.md and openapi.json: the JSON API of `pgsched web`, from its table of operations."""

from __future__ import annotations

import json
from typing import Any

from pgsched.web.api.openapi import document
from pgsched.web.api.operation_table import OPERATIONS, PREFIX, Operation
from pgsched.web.api.schemas import ANSWERS
from tools.reference.markdown import code, prose, table
from tools.reference.markdown import page as whole

INTRODUCTION = f"""
The JSON API of `pgsched web`: {len(OPERATIONS)} operations below `{PREFIX}`. How a program logs in and what a refusal
looks like: [web](../how-to/web.md#for-programs). The whole description is
[openapi.json](openapi.json) (OpenAPI 3.1), which a running console serves at `/api/openapi.json`. Names in bold must be
given. A `Thing` is an object whose fields depend on the operation.
""".strip()


def openapi() -> str:
    """Return the OpenAPI document that a console with a login serves."""
    return json.dumps(document(authenticates=True), indent=2) + "\n"


def page() -> str:
    """Return the text of the page."""
    parts: list[list[str]] = [[INTRODUCTION]]
    for tag in dict.fromkeys(map(tag_of, OPERATIONS)):
        rows = [row(operation) for operation in OPERATIONS if tag_of(operation) == tag]
        parts += [[f"## {tag.capitalize()}"], table(("operation", "does", "query", "body", "answer"), rows)]
    parts += [["## Answers"], ["An answer may have more fields than are named here."]]
    parts.append(table(("name", "always", "where it applies"), [fields(name) for name in ANSWERS]))
    return whole("HTTP API", *parts)


def tag_of(operation: Operation) -> str:
    """Return the group of an operation: the first part of its path."""
    return operation.path.split("/")[1]


def row(operation: Operation) -> tuple[str, ...]:
    """Return the row of an operation."""
    query = [format_parameter(name, bool(schema.get("required"))) for name, schema in operation.query.items()]
    body = [format_parameter(name, name in operation.required) for name in operation.body or {}]
    if len(body) > 20:  # the columns of a job
        body = [*(one for one in body if one.startswith("**")), "any [column of a job](jobs.md)"]
    return (
        code(f"{operation.method} {operation.path}"), prose(operation.summary), ", ".join(query), ", ".join(body),
        answer(operation.answer),
    )  # fmt: skip


def format_parameter(name: str, required: bool) -> str:
    """Format a parameter; a required one is bold."""
    return f"**{code(name)}**" if required else code(name)


def answer(schema: dict[str, Any]) -> str:
    """Return the name of an answer's schema; for a list of answers, the field that holds it."""
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    (plural,) = schema["properties"]
    return f"{code(plural)}: list of {answer(schema['properties'][plural]['items'])}"


def fields(name: str) -> tuple[str, ...]:
    """Return the row of a schema: its name, required fields, and optional fields."""
    schema = ANSWERS[name]
    required = schema.get("required", [])
    known = schema.get("properties", {})
    return code(name), ", ".join(map(code, required)), ", ".join(code(one) for one in known if one not in required)
