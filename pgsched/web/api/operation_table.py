"""The table of operations of the JSON API, and the routes that are made from it.

The OpenAPI document is made from the same table.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from pgsched.core import policies
from pgsched.core.payload import json_value
from pgsched.db.connection.connect import DatabaseError
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.reports.audit import KINDS
from pgsched.errors import InputError, NotPermitted, PgschedError
from pgsched.services import long_charts
from pgsched.services.charts import RANGES
from pgsched.services.check import Finding
from pgsched.services.runs.changes import MOST
from pgsched.web.api import operations as do
from pgsched.web.api import reports as tell
from pgsched.web.api.operations import Call
from pgsched.web.api.schemas import (
    ANY,
    COLUMNS,
    FILTERS,
    ID,
    LIMIT,
    QUEUE,
    RANGE,
    RETENTION,
    Schema,
    array_of,
    check_value,
    integer_schema,
    object_schema,
    one_of,
    read_body,
    read_query,
    text_schema,
)  # fmt: skip
from pgsched.web.pages.doctor import Diagnosis
from pgsched.web.pages.responses import Endpoint, connection, error_for_visitor, status_of
from pgsched.web.security.secrets import Role
from pgsched.web.security.visitors import Visitor

PREFIX = "/api/v1"
REASON = {"reason": text_schema(500)}
DRY_RUN = {"dry_run": {"type": "boolean"}}
DATES = {"from": text_schema(10, description="2026-12-24"), "to": text_schema(10)}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API.

    `summary`: its name in the OpenAPI document and in refusals.
    `call`: the function that does it.
    `answer`: the schema of its answer.
    `query`, `body`: the schemas of the URL's parameters and of the body's fields; `body` None: it takes no body.
    `required`: the fields that a body must have.
    `permission`: the role that a visitor needs.
    `needs`: further values of the request that `call` gets, by their names in REQUEST_VALUES.
    """

    method: str
    path: str
    summary: str
    call: Call
    answer: Schema
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Mapping[str, Schema] | None = None
    required: tuple[str, ...] = ()
    permission: Role = "write"
    needs: tuple[str, ...] = ()

    @property
    def parameters(self) -> list[str]:
        """Return the names of the parameters in the path."""
        return re.findall(r"\{(\w+)\}", self.path)


def ref(name: str) -> Schema:
    """Return a reference to a schema of the OpenAPI document."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(plural: str, name: str) -> Schema:
    """Return the schema of an answer with a list of things, named `plural`."""
    return object_schema({plural: array_of(name)})


COUNT = {"count": integer_schema(1, 1000)}
PAUSED = {"what": one_of(policies.PAUSED), "name": text_schema(200)}
BULK_BODY = {"ids": {"type": "array", "items": ID, "maxItems": MOST}, **FILTERS, **DRY_RUN}
op = Operation
look = partial(Operation, "GET", permission="read")
OPERATIONS = (
    look("/status", "The whole system and its health", do.show_status, ref("Thing")),
    look("/jobs", "Jobs by name", do.list_jobs, list_of("jobs", "Job"),
      {"state": one_of(jobs.STATES), "queue": text_schema(), "after": text_schema(),
       "limit": integer_schema(1, 1000)}),
    op("POST", "/jobs", "Create a job: any column of the table jobs", do.add_job, ref("Job"), {}, COLUMNS,
      ("name", "task")),
    op("POST", "/jobs/{job}/pause", "Stop its schedule", do.pause_job, ref("Job"), {}, REASON, needs=("user",)),
    op("POST", "/jobs/{job}/resume", "Start its schedule again", do.resume_job, ref("Job"), {},
      {"from": one_of(("now", "pause"))}),
    op("POST", "/jobs/{job}/run", "Run it now, beside its schedule", do.run_job, ref("Run"), {},
      {"args": ANY, "overlap": one_of(policies.OVERLAP)}),
    look("/jobs/{job}/preview", "Its next slots", do.foresee_job, ref("Thing"), COUNT),
    look("/jobs/{job}/explain", "What happened to a slot, and why", do.explain, ref("Thing"), {"at": text_schema(50)}),
    op("POST", "/jobs/{job}/backfills", "Run it for past slots, or with dry_run say which", do.backfill, ref("Thing"),
      {}, RANGE, ("from", "to")),
    look("/jobs/{job}/slots", "Its newest slots and what became of them", tell.list_slots,
      list_of("slots", "Slot"), {"from": text_schema(50), "until": text_schema(50), "limit": integer_schema(1, 1000)}),
    look("/jobs/{job}/rates", "Its durations and outcomes, also of runs that are gone", tell.show_job_rates,
      ref("Rates"), {"range": one_of(long_charts.OF_A_JOB)}),
    look("/jobs/{job}/dates", "The dates on which it does not run", do.list_dates, list_of("dates", "Dates")),
    op("POST", "/jobs/{job}/dates", "Exclude dates: both count, in its time zone", do.exclude_dates, ref("Dates"), {},
      {**DATES, **REASON}, ("from",)),
    op("DELETE", "/jobs/{job}/dates", "Let it run on them again", do.allow_dates, list_of("dates", "Dates"),
      {"from": text_schema(10, required=True), "to": text_schema(10)}),
    look("/jobs/{job}", "One job, whole", do.show_job, ref("Job")),
    op("PATCH", "/jobs/{job}", "Change columns; null puts a default back", do.change_job, ref("Job"), {}, COLUMNS),
    op("DELETE", "/jobs/{job}", "Delete it; its unstarted runs are cancelled", do.delete_job, ref("Thing")),
    look("/schedule/preview", "What a schedule means, and its next slots", do.foresee, ref("Thing"),
      {"expression": text_schema(512, required=True), "timezone": text_schema(100), "from": text_schema(50), **COUNT}),
    look("/backfills", "The newest backfills", do.list_backfills, list_of("backfills", "Backfill"),
      {"limit": integer_schema(1, 1000)}),
    look("/backfills/{id}", "One backfill", do.show_backfill, ref("Backfill")),
    op("POST", "/backfills/{id}/cancel", "End it with its open runs", do.cancel_backfill, ref("Result"), {}, REASON),
    look("/runs", "The newest runs that the filters mean", do.list_runs, list_of("runs", "Run"),
      {**FILTERS, "limit": integer_schema(1, 1000), "before": ID}),
    op("POST", "/runs/retry", "Revive many: by ids, or by a filter (the dead ones)", do.retry_many, ref("Changed"), {},
      BULK_BODY),
    op("POST", "/runs/cancel", "Cancel many: by ids, or by a filter", do.cancel_many, ref("Changed"), {},
      {**BULK_BODY, **REASON}),
    look("/runs/{id}", "One run, with its attempts", do.show_run, ref("Run")),
    op("POST", "/runs/{id}/retry", "Revive it", do.retry_run, ref("Result"), {}, {}),
    op("POST", "/runs/{id}/cancel", "Cancel it, or ask its worker to", do.cancel_run, ref("Result"), {}, REASON),
    look("/runs/{id}/tree", "The graph of runs that it belongs to", do.run_tree, ref("Thing")),
    op("POST", "/runs/{id}/tree/retry", "Revive what failed of that graph", do.retry_tree, ref("Thing"), {}, {}),
    op("POST", "/runs/{id}/tree/cancel", "Cancel what is unfinished of it", do.cancel_tree, ref("Thing"), {}, REASON),
    look("/runs/{id}/log", "A page of its output", do.run_log, list_of("lines", "Line"),
      {"attempt": integer_schema(1, 2**31 - 1), "stream": one_of(("stdout", "stderr", "log")),
       "after_attempt": integer_schema(0, 2**31 - 1), "after_seq": integer_schema(-1, 2**31 - 1)}),
    look("/queues", "Queues with settings, a pause or open runs", do.list_queues, list_of("queues", "Queue")),
    op("PUT", "/queues/{name}", "Set something for a queue; null takes it away", do.set_queue, ref("Queue"), {}, QUEUE),
    look("/limits", "Limits of keys", do.list_limits, list_of("limits", "Limit")),
    op("PUT", "/limits/{name}", "Set a limit of keys; null takes it away", do.set_limit, ref("Limit"), {}, LIMIT),
    op("DELETE", "/limits/{name}", "Remove a limit", do.remove_limit, ref("Limit")),
    look("/pauses", "What is paused", do.list_pauses, list_of("pauses", "Pause")),
    op("POST", "/pauses", "Let nothing of it start", do.pause, ref("Pause"), {},
      {**PAUSED, **REASON, "for": text_schema(30)}, ("what",), needs=("user",)),
    op("POST", "/pauses/end", "Let it start again", do.resume, ref("Pause"), {}, PAUSED, ("what",)),
    look("/retention", "How long things are kept", do.show_retention, ref("Retention")),
    op("PATCH", "/retention", "Change that", do.set_retention, ref("Retention"), {}, RETENTION),
    look("/rates", "Throughput, latency, lateness and errors, stretch by stretch", tell.show_rates, ref("Rates"),
      {"range": one_of((*RANGES, *long_charts.LONGER))}),
    look("/alerts", "Incidents that are open, or all", tell.list_alerts, list_of("alerts", "Alert"),
      {"all": {"type": "boolean"}, "limit": integer_schema(1, 1000)}),
    look("/audit", "Who changed what, the newest first", tell.list_changes, list_of("changes", "Change"),
      {"what": one_of(KINDS), "name": text_schema(), "who": text_schema(), "since": text_schema(50), "before": ID,
       "limit": integer_schema(1, 1000)}),
    look("/doctor", "What `pgsched doctor` said last", tell.diagnose, list_of("findings", "Finding"),
         needs=("diagnosis",)),
    look("/workers", "The workers that are alive", do.list_workers, list_of("workers", "Worker")),
    op("POST", "/workers/{id}/drain", "Let it take no more and end", do.drain_worker, ref("Thing"), {}, {},
      needs=("user",)),
)  # fmt: skip


def endpoint(operation: Operation) -> Endpoint:
    """Return the endpoint of an operation."""

    async def answer(request: Request) -> Response:
        return await run_in_threadpool(answer_timed, request, operation)

    return answer


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
        error = error_for_visitor(request, raised)
        # dumps writes ASCII: an error may repeat half a surrogate pair, which UTF-8 cannot encode
        refusal = json.dumps({"error": str(error), "field": getattr(error, "field", None)})
        return Response(refusal, status_of(error), media_type="application/json")
    text = json.dumps(found, default=json_value)
    return Response(text, media_type="application/json")


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
    return {**query, **body, **path, **{name: REQUEST_VALUES[name](request) for name in operation.needs}}


def permit(operation: Operation, visitor: Visitor) -> None:
    """Raise NotPermitted if the visitor's role does not allow the operation.

    The guard in front refuses by HTTP method; this check refuses by the table.
    """
    if visitor.role == "none" or (operation.permission == "write" and not visitor.may_write):
        raise NotPermitted(f"{operation.summary}: you may look here but not change anything")


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
    """Return the routes, in the order of the table.

    A job's name may contain slashes, so that two routes can fit: the first counts.
    """
    return [
        Route(PREFIX + starlette_path(operation.path), endpoint(operation), methods=[operation.method])
        for operation in OPERATIONS
    ]


def starlette_path(path: str) -> str:
    """Return the path in the notation of starlette."""
    return path.replace("{id}", "{id:row}").replace("{job}", "{job:path}").replace("{name}", "{name:path}")
