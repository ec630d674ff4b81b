"""Generate docs/reference/http-api.md and openapi.json: the JSON API of `pgsched web`, from its table of operations."""

from __future__ import annotations

import json
from typing import Any

from pgsched.web.api.answers import ANSWERS
from pgsched.web.api.errors import CODES, ERRORS, MEANINGS
from pgsched.web.api.openapi import document
from pgsched.web.api.operation_table import OPERATIONS, PREFIX, Operation
from pgsched.web.api.schemas import COLUMNS
from tools.reference.markdown import code, prose, table
from tools.reference.markdown import page as whole

INTRODUCTION = f"""
The JSON API of `pgsched web`: {len(OPERATIONS)} operations below `{PREFIX}`. How a program logs in and what a refusal
looks like: [web](../how-to/web.md#for-programs). The whole description is
[openapi.json](openapi.json) (OpenAPI 3.1), which a running console serves at `/api/openapi.json`. Names in bold must be
given; `Idempotency-Key` is a header.
""".strip()
REFUSALS = """
Every answer of 400 or more below `/api` has that shape, also for an unknown path, a wrong method or a body that is too
large. Only what the HTTP server refuses before it has read a request is plain text. `Retry-After` says after how many
seconds to try again.
""".strip()
# A test plays these blocks: tests/e2e/docs/test_blocks.py.
EXAMPLES = r"""
## From a shell

```sh
head -c 24 /dev/urandom | base64 > token
printf 'Authorization: Bearer %s\nContent-Type: application/json\n' "$(cat token)" > headers
pgsched web --token-file token
```

Make a run. Its task needs no code here, only a worker somewhere that has it. With the same key, the same request gives
the same run, however often it is sent:

```console
$ curl -sS -H @headers localhost:8080/api/v1/runs -H 'Idempotency-Key: 7' -d '{"task": "shop.welcome", "delay": "10m"}'
{"id": 1, "how": "created", "notes": ["no live worker offers and no job has task shop.welcome"]}
$ curl -sS -H @headers localhost:8080/api/v1/runs -H 'Idempotency-Key: 7' -d '{"task": "shop.welcome", "delay": "10m"}'
{"id": 1, "how": "repeated", "notes": ["no live worker offers and no job has task shop.welcome"]}
```

Wait for its end, at most 60 seconds; a run that goes on is returned as it is then. So a loop gets the result at once,
and asks seldom:

```console
$ curl -sS -H @headers 'localhost:8080/api/v1/runs/1?wait=1' | jq -c '{state, result}'
{"state":"scheduled","result":null}
```

Change it before it starts, or cancel it:

```console
$ curl -sS -H @headers -X PATCH localhost:8080/api/v1/runs/1 -d '{"priority": 1}' | jq -c '{state, priority}'
{"state":"scheduled","priority":1}
$ curl -sS -H @headers -X POST localhost:8080/api/v1/runs/1/cancel
{"id": 1, "result": "cancelled"}
```

Each refusal has one shape. `code` is for programs; `field` names what is wrong, and `hint` says what to do:

```console
$ curl -sS -H @headers localhost:8080/api/v1/runs -d '{"task": "shop.welcome", "delay": "soon"}'
{"error": {"code": "invalid", "message": "delay: \"soon\" is not a time such as 90s, 10m, 1h or 2d", "field": "delay"}}
```
""".strip()


def openapi() -> str:
    """Return the OpenAPI document that a console with a login serves."""
    return json.dumps(document(authenticates=True), indent=2) + "\n"


def page() -> str:
    """Return the text of the page."""
    parts: list[list[str]] = [[INTRODUCTION], [EXAMPLES], ["## Refusals"], [REFUSALS], error_table()]
    for tag in dict.fromkeys(map(tag_of, OPERATIONS)):
        rows = [row(operation) for operation in OPERATIONS if tag_of(operation) == tag]
        parts += [[f"## {tag.capitalize()}"], table(("operation", "does", "query", "body", "answer"), rows)]
    parts += [["## Answers"], ["An answer may have more fields than are named here."]]
    parts.append(table(("name", "always", "where it applies"), [fields(name) for name in ANSWERS]))
    return whole("HTTP API", *parts)


def error_table() -> list[str]:
    """Return the table of the codes of refusals."""
    statuses = {name: status for status, name in CODES.items()} | {name: status for _, status, name, _ in ERRORS}
    rows = sorted((status, name) for name, status in statuses.items())
    return table(("status", "code", "meaning"), [(str(s), code(name), prose(MEANINGS[name])) for s, name in rows])


def tag_of(operation: Operation) -> str:
    """Return the group of an operation: the first part of its path."""
    return operation.path.split("/")[1]


def row(operation: Operation) -> tuple[str, ...]:
    """Return the row of an operation."""
    query = [format_parameter(name, bool(schema.get("required"))) for name, schema in operation.query.items()]
    query += [format_parameter(name, required=False) for name in operation.headers]
    body = [format_parameter(name, name in operation.required) for name in operation.body or {}]
    if COLUMNS.keys() <= (operation.body or {}).keys():
        others = [format_parameter(name, False) for name in operation.body or {} if name not in COLUMNS]
        body = [*(one for one in body if one.startswith("**")), "any [column of a job](jobs.md)", *others]
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
    if "anyOf" in schema:
        return " or ".join(map(answer, schema["anyOf"]))
    (plural,) = schema["properties"]
    return f"{code(plural)}: list of {answer(schema['properties'][plural]['items'])}"


def fields(name: str) -> tuple[str, ...]:
    """Return the row of a schema: its name, required fields, and optional fields."""
    schema = ANSWERS[name]
    required = schema.get("required", [])
    known = schema.get("properties", {})
    return code(name), ", ".join(map(code, required)), ", ".join(code(one) for one in known if one not in required)
