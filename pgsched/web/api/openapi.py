"""The OpenAPI document of the JSON API, made from the table of operations."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import pgsched
from pgsched.web.api.answers import ANSWERS
from pgsched.web.api.operation_table import OPERATIONS, PREFIX, Operation
from pgsched.web.api.schemas import ID, text_schema
from pgsched.web.security.prefix import prefix_of

REFUSED = {
    "description": "Refused, and why",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


def document(authenticates: bool, prefix: str = "") -> dict[str, Any]:
    """Return the whole document.

    `authenticates`: requests need a token. `prefix`: the path below which the console is reached.
    """
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = describe_operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "pgsched", "version": pgsched.__version__,
                 "description": "What the console does, for programs. Changes are sent as application/json."},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {"schemas": ANSWERS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        **({"security": [{"token": []}]} if authenticates else {}),
    }  # fmt: skip


def describe_operation(operation: Operation) -> dict[str, Any]:
    """Return the document's part about one operation."""
    path = [
        {"name": name, "in": "path", "required": True, "schema": ID if name == "id" else text_schema(500)}
        for name in operation.parameters
    ]
    query = [
        {"name": name, "in": "query", "required": bool(schema.get("required")),
         "schema": {key: value for key, value in schema.items() if key != "required"}}
        for name, schema in operation.query.items()
    ]  # fmt: skip
    headers = [
        {"name": name, "in": "header", "required": False, "schema": schema}
        for name, schema in operation.headers.items()
    ]
    found = {
        "summary": operation.summary,
        "operationId": operation.call.__name__,
        "tags": [operation.path.split("/")[1]],
        "parameters": [*path, *query, *headers],
        "responses": {
            **describe_answers(operation),
            "4XX": REFUSED,
            "5XX": REFUSED,
        },
    }
    return found | ({} if operation.body is None else {"requestBody": describe_body(operation)})


def describe_answers(operation: Operation) -> dict[str, Any]:
    """Return the part about the answers of an operation that are no refusals."""
    content = {"application/json": {"schema": operation.answer}}
    if not operation.creates:
        return {"200": {"description": "Done", "content": content}}
    place = {"Location": {"description": "the address of the run", "schema": {"type": "string"}}}
    return {
        "201": {"description": "Made", "content": content, "headers": place},
        "200": {"description": "There was one with that key", "content": content, "headers": place},
    }


def describe_body(operation: Operation) -> dict[str, Any]:
    """Return the part about the body of an operation.

    The schema does not say everything that a column refuses: the rest is checked by the database.
    """
    schema = {"type": "object", "properties": dict(operation.body or {}), "required": list(operation.required),
              "additionalProperties": False}  # fmt: skip
    return {"required": bool(operation.required), "content": {"application/json": {"schema": schema}}}


def serve_document(request: Request) -> Response:
    """Answer `GET /api/openapi.json`."""
    return JSONResponse(document(request.app.state.settings.authenticates, prefix_of(request)))
