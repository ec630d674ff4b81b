"""From an operation of the table to an HTTP answer: its route, its checks, its call, and its refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from pgsched.core.payload import json_value
from pgsched.db.connection.connect import DatabaseError
from pgsched.errors import InputError, NotPermitted, PgschedError
from pgsched.services.check import Finding
from pgsched.web.api.errors import operation_error
from pgsched.web.api.operation_table import OPERATIONS, PREFIX, Operation
from pgsched.web.api.schemas import ID, check_value, read_body, read_query, text_schema
from pgsched.web.api.waiting import WaitingRequests
from pgsched.web.pages.doctor import Diagnosis
from pgsched.web.pages.responses import Endpoint, connection, error_for_visitor
from pgsched.web.security.visitors import Visitor

LOOK_ONLY = "look here but not change anything"


def endpoint(operations: dict[str, Operation]) -> Endpoint:
    """Return the endpoint of the operations of one path, by their methods."""

    async def answer(request: Request) -> Response:
        operation = operations["GET" if request.method == "HEAD" else request.method]
        if operation.waits and (refusal := await wait_if_asked(request, operation)) is not None:
            return refusal
        return await run_in_threadpool(answer_timed, request, operation)

    return answer


async def wait_if_asked(request: Request, operation: Operation) -> Response | None:
    """Wait for the run in the path if the URL says so; return the refusal of a request that may not wait."""
    waiting: WaitingRequests = request.app.state.waiting
    try:
        permit(operation, request.state.visitor)
        given = read_parameters(request, operation)
        if given.get("wait") and not await waiting.wait_for(given["id"], given["wait"], request.receive):
            return Response(status_code=204)  # the client has gone away and reads no answer
    except PgschedError as error:
        return refuse_call(request, error)
    return None


def answer_timed(request: Request, operation: Operation) -> Response:
    """Answer a request; a header says how many milliseconds the answer took."""
    begun = time.perf_counter()
    response = call_operation(request, operation)
    response.headers["Server-Timing"] = f"total;dur={(time.perf_counter() - begun) * 1000:.1f}"
    return response


def call_operation(request: Request, operation: Operation) -> Response:
    """Check, read and execute a request; return the answer or a refusal."""
    try:
        permit(operation, request.state.visitor)
        given = read_parameters(request, operation)
        with connection(request) as conn:
            found = operation.call(conn, given)
    except (PgschedError, DatabaseError) as raised:
        return refuse_call(request, raised)
    status, headers = (200, {}) if not operation.creates else made_answer(found)
    return Response(json.dumps(found, default=json_value), status, headers, media_type="application/json")


def made_answer(found: dict[str, Any]) -> tuple[int, dict[str, str]]:
    """Return status and headers of an answer about a run: 201 if the request made it, and its address."""
    return 201 if found["how"] == "created" else 200, {"Location": f"{PREFIX}/runs/{found['id']}"}


def refuse_call(request: Request, raised: PgschedError | DatabaseError) -> Response:
    """Return the refusal for an error of an operation."""
    return operation_error(error_for_visitor(request, raised), request.method, PREFIX)


def read_parameters(request: Request, operation: Operation) -> dict[str, Any]:
    """Return the parameters of the path, the URL and the body by name, and what the operation needs besides.

    Raises InputError for a parameter that is missing, unknown or invalid.
    """
    query = read_query(request.query_params.multi_items(), operation.query)
    for name, schema in operation.query.items():
        if schema.get("required") and name not in query:
            raise InputError(f"{name}: is missing", name)
    body = {} if operation.body is None else read_json_body(request, operation)
    path = {name: check_path_part(name, request.path_params[name]) for name in operation.parameters}
    needs = {name: REQUEST_VALUES[name](request) for name in operation.needs}
    return {**query, **body, **path, **read_headers(request, operation), **needs}


def read_headers(request: Request, operation: Operation) -> dict[str, str]:
    """Return the headers that the operation reads, by their names in small letters with underscores.

    Raises InputError for one that is invalid or given twice.
    """
    found: dict[str, str] = {}
    for name, schema in operation.headers.items():
        values = request.headers.getlist(name)
        if len(values) > 1:
            raise InputError(f"{name}: is given twice", name)
        if values:
            check_value(schema, values[0], name)
            found[name.lower().replace("-", "_")] = values[0]
    return found


def permit(operation: Operation, visitor: Visitor) -> None:
    """Raise NotPermitted if the visitor's role does not allow the operation.

    The guard in front refuses by HTTP method; this check refuses by the table.
    """
    if not operation.allows(visitor.role):
        may = "make runs here, read them, read one task, and nothing else" if visitor.role == "produce" else LOOK_ONLY
        raise NotPermitted(f"{operation.summary}: you may {may}")


def last_diagnosis(request: Request) -> tuple[list[Finding] | None, float]:
    """Return the doctor's last findings (None before the first check), and their age in seconds."""
    diagnosis: Diagnosis = request.app.state.diagnosis
    return diagnosis.last(all_of_it=request.state.visitor.may_write)


REQUEST_VALUES: dict[str, Callable[[Request], Any]] = {
    "user": lambda request: request.state.visitor.user or None,
    "diagnosis": last_diagnosis,
}


def check_path_part(name: str, given: Any) -> Any:
    """Check a name or an id in the path, and return it.

    Raises InputError for an invalid one.
    """
    schema = ID if name == "id" else text_schema(500)
    check_value(schema, given, name)
    return given


def read_json_body(request: Request, operation: Operation) -> dict[str, Any]:
    """Return the fields of the body; a request without a body has none.

    Raises InputError for a body that is not JSON or does not fit the operation.
    """
    assert operation.body is not None
    try:
        value = json.loads(request.state.body or b"{}", parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON") from None
    return read_body(value, operation.body, operation.required)


def refuse_constant(name: str) -> Any:
    """Raise ValueError for NaN and the infinities, which Python reads although JSON does not have them."""
    raise ValueError(name)


def routes() -> list[BaseRoute]:
    """Return a route for each path, in the order of the table.

    A job's name may contain slashes, so that two routes can fit: the first counts. One route has all methods of a path,
    so that the refusal of another method names them.
    """
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route(PREFIX + starlette_path(path), endpoint(operations), methods=list(operations))
        for path, operations in paths.items()
    ]


def starlette_path(path: str) -> str:
    """Return the path in the notation of starlette."""
    return path.replace("{id}", "{id:row}").replace("{job}", "{job:path}").replace("{name}", "{name:path}")
