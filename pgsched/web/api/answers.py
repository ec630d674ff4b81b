"""JSON Schemas of the API's answers. Rows take their fields from the tables, and other answers from their dataclasses.

Invariant: no answer is a bare object. Where a value may be any JSON, as the arguments of a run, its schema says so.
An answer may have more fields than its schema names.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Column, Date, Float, Integer, Numeric, String, Table
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL, JSONB, TIMESTAMP, UUID

from pgsched.core import policies
from pgsched.core.explain import Explanation
from pgsched.core.input_values import RETENTION_TIMES
from pgsched.core.model import KINDS_OF_RUNS, EnqueueResult, Kind, State
from pgsched.core.planning.backfill import Choice
from pgsched.core.schedule.preview import JobPreview, PreviewSlot
from pgsched.db.queries.recipes.locks import Contender
from pgsched.db.schema import limit_tables, policy_tables, tables, watch_tables
from pgsched.services.charts import Stretch
from pgsched.services.check import Finding
from pgsched.services.jobs.excluded_dates import ExcludedDates
from pgsched.services.long_charts import JobStretch
from pgsched.services.status_model import Status
from pgsched.services.tasks import KnownTask
from pgsched.web.api.annotations import dataclass_schema, schema_of
from pgsched.web.api.errors import ALL_CODES
from pgsched.web.api.schemas import ANY, DATE, INSTANT, Schema, array_of, nullable, object_schema, one_of

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
SECONDS: Schema = {"type": "number", "description": "seconds"}
KEEP: Schema = nullable(
    {"type": "object", "additionalProperties": TEXT, "description": '{"dead": "90 days", "any": "7 days"}'}
)
NULLABLE_TEXT = nullable(TEXT)
MOMENT = nullable(INSTANT)
# Columns that only the engine uses.
INTERNAL = (
    "token", "phase", "held_until", "has_children", "checked", "begun", "suspect", "reruns", "awaited", "limited",
    "applied_at", "waits_for", "shifts",
)  # fmt: skip
COLUMN_SCHEMAS: tuple[tuple[Any, Schema], ...] = (
    (Boolean, FLAG),
    (Integer, WHOLE),  # and SmallInteger, BigInteger
    (Float, NUMBER),  # and Double
    (Numeric, NUMBER),
    (TIMESTAMP, INSTANT),
    (Date, DATE),
    (INTERVAL, SECONDS),
    (String, TEXT),  # and Text
    (UUID, TEXT),
)


def column_schema(column: Column[Any]) -> Schema:
    """Return the schema of a column's values. Raises TypeError for a type that no answer has."""
    kind: Any = column.type
    if isinstance(kind, JSONB):
        return ANY
    found = next((schema for cls, schema in COLUMN_SCHEMAS if isinstance(kind, cls)), None)
    if isinstance(kind, ARRAY):
        item = next(schema for cls, schema in COLUMN_SCHEMAS if isinstance(kind.item_type, cls))
        found = {"type": "array", "items": item}
    if found is None:
        raise TypeError(f"no JSON Schema for column {column.name} of type {kind}")
    return nullable(found) if column.nullable else found


def row_schema(table: Table, required: str, **more: Schema) -> Schema:
    """Return the schema of rows of a table.

    `required`: the fields that each answer has. `more`: fields beside the table's columns, or instead of them.
    """
    columns = {column.name: column_schema(column) for column in table.columns if column.name not in INTERNAL}
    known = columns | more
    needed = required.split()
    return object_schema({name: known.pop(name) for name in needed}, **known)


JOB = row_schema(
    tables.jobs,
    "id name kind task queue schedule timezone",
    kind=one_of(Kind),
    keep=KEEP,
    now=INSTANT,
    decided_until=MOMENT,  # of a job that runs once: no slot is decided
    next_allowed_at=MOMENT,
    state=TEXT,
    last_run_id=nullable(WHOLE),
    last_run_state=nullable(one_of(State)),
    last_run_at=MOMENT,
    excluded=nullable(
        {"type": "array", "description": "first date, last date, reason", "items": {"type": "array", "items": ANY}}
    ),
)
ATTEMPT = row_schema(tables.attempts, "attempt outcome finished_at")
del ATTEMPT["properties"]["run_id"]
RUN = row_schema(
    tables.runs,
    "id state queue kind task attempt max_attempts",
    state=one_of(State),
    kind=one_of(KINDS_OF_RUNS),
    available_at=MOMENT,
    job=NULLABLE_TEXT,
    worker=NULLABLE_TEXT,
    unroutable=FLAG,
    now=INSTANT,
    attempts={"type": "array", "items": ATTEMPT},
)
BACKFILL = row_schema(
    policy_tables.backfills,
    "id job state",
    state=TEXT,
    leading=FLAG,
    now=INSTANT,
    undecided_from=MOMENT,
    **dict.fromkeys(("open", "succeeded", "dead", "cancelled", "missed"), WHOLE),
)
QUEUE = row_schema(
    limit_tables.queues,
    "name",
    on_full=NULLABLE_TEXT,
    fair=FLAG,
    keep=KEEP,
    rate_s=nullable(SECONDS),
    applied=FLAG,
    depth=WHOLE,
    running=WHOLE,
    paused_at=MOMENT,
    paused_by=NULLABLE_TEXT,
    paused_reason=NULLABLE_TEXT,
    resume_at=MOMENT,
)
LIMIT = row_schema(
    limit_tables.limits,
    "name",
    rate_s=nullable(SECONDS),
    applied=FLAG,
    **dict.fromkeys(("keys", "admitted", "waiting"), WHOLE),
)
DELIVERY = object_schema(
    {"event": TEXT, "sink": TEXT, "attempts": WHOLE, "delivered_at": MOMENT, "error": NULLABLE_TEXT}
)
PARENT = object_schema({"id": WHOLE, "state": NULLABLE_TEXT}, any_of=FLAG, on_failure=TEXT)
LOCK = object_schema(
    {"name": TEXT, "owner": TEXT, "kind": one_of(policies.LOCK_KINDS), "capacity": nullable(WHOLE), "holders": WHOLE,
     "waiting": WHOLE},
    holder=NULLABLE_TEXT, fence=nullable(WHOLE), held_since=MOMENT, lease_until=MOMENT, waiting_since=MOMENT,
    used_at=INSTANT, now=INSTANT,
)  # fmt: skip
CONTENDERS: Schema = {"type": "array", "items": schema_of(Contender)}
CHANGED_RUN = object_schema({"id": WHOLE, "before": NULLABLE_TEXT, "after": NULLABLE_TEXT, "skipped": NULLABLE_TEXT})
CHANGED_RUNS: Schema = {"type": "array", "items": CHANGED_RUN}
ANSWERS: dict[str, Schema] = {
    "Error": object_schema(
        {
            "error": object_schema(
                {"code": one_of(ALL_CODES), "message": TEXT},
                field={"type": "string", "description": "the parameter or field that is wrong, with its path"},
                hint={"type": "string", "description": "what to do"},
            )
        }
    ),
    "Status": dataclass_schema(
        Status, healthy=FLAG, problems=schema_of(list[str]), throughput_per_s=schema_of(dict[str, float])
    ),
    "Job": JOB,
    "DeletedJob": object_schema(
        {"id": WHOLE, "name": TEXT, "running": {"type": "integer", "description": "its runs that go on"}}
    ),
    "Run": RUN,
    "Enqueued": object_schema(
        {
            "id": WHOLE,
            "how": schema_of(EnqueueResult),
            "notes": {"type": "array", "items": TEXT, "description": "such as: no live worker offers the task"},
        }
    ),
    "Preview": dataclass_schema(JobPreview),
    "SchedulePreview": object_schema({"sentence": TEXT, "fires": {"type": "array", "items": schema_of(PreviewSlot)}}),
    "Explanation": dataclass_schema(Explanation),
    "Backfill": BACKFILL,
    "BackfillPreview": object_schema(
        {
            "job": TEXT,
            "slots": WHOLE,
            "undecided_from": MOMENT,
            "choices": {"type": "array", "items": schema_of(Choice)},
        }
    ),
    "Queue": QUEUE,
    "Limit": LIMIT,
    "RemovedLimit": object_schema({"name": TEXT}),
    "Pause": row_schema(limit_tables.pauses, "what name", now=INSTANT),
    "Worker": object_schema(
        {"id": WHOLE, "name": TEXT, "running": WHOLE, "concurrency": WHOLE, "stopping": FLAG},
        hostname=TEXT,
        pid=WHOLE,
        version=TEXT,
        app=NULLABLE_TEXT,
        abandoned=WHOLE,
        kinds=schema_of(list[str]),
        queues=schema_of(list[str] | None),
        tasks=WHOLE,
        started_at=INSTANT,
        seen_s=SECONDS,
        blocked_s=nullable(SECONDS),
        blocked_by=NULLABLE_TEXT,
        drain_asked=FLAG,
    ),
    "DrainedWorker": object_schema({"id": WHOLE, "name": TEXT}),
    "Lock": LOCK,
    "LockLine": object_schema({"lock": LOCK, "holders": CONTENDERS, "waiting": CONTENDERS}),
    "BrokenLock": object_schema({"name": TEXT, "broken": {"type": "integer", "description": "how many held it"}}),
    "Line": object_schema({"attempt": WHOLE, "seq": WHOLE, "stream": TEXT, "text": TEXT}, at=INSTANT),
    "Slot": object_schema(
        {"id": WHOLE, "state": one_of(State), "scheduled_at": INSTANT, "look": TEXT},
        late_s=nullable(SECONDS),
        **{
            name: RUN["properties"][name]
            for name in (
                "origin",
                "started_at",
                "finished_at",
                "attempt",
                "max_attempts",
                "reason",
                "error",
                "covers_from",
                "covers_until",
                "covers_count",
            )
        },
    ),
    "Dates": dataclass_schema(ExcludedDates),
    "Task": dataclass_schema(KnownTask),
    "Rates": object_schema({"range": TEXT, "stretches": {"type": "array", "items": schema_of(Stretch)}}),
    "JobRates": object_schema({"range": TEXT, "stretches": {"type": "array", "items": schema_of(JobStretch)}}),
    "Alert": row_schema(
        watch_tables.alerts, "id kind opened_at details", now=INSTANT, told={"type": "array", "items": DELIVERY}
    ),
    "Change": object_schema(
        {"id": WHOLE, "at": INSTANT, "who": TEXT, "action": TEXT, "what": TEXT, "name": TEXT},
        for_user=NULLABLE_TEXT,
        acting_as=NULLABLE_TEXT,
        application=NULLABLE_TEXT,
        address=NULLABLE_TEXT,
        change=ANY,
    ),
    "Doctor": object_schema(
        {
            "findings": {"type": "array", "items": schema_of(Finding)},
            "age_s": nullable({"type": "number", "description": "seconds since the check; null before the first"}),
        }
    ),
    "Retention": object_schema(
        {"keep": KEEP, "archive": FLAG} | dict.fromkeys(RETENTION_TIMES, TEXT),
        counted_until=MOMENT,
        **{
            name: {"type": "array", "items": object_schema({"name": TEXT, "keep": KEEP})} for name in ("queues", "jobs")
        },
    ),
    "Changed": object_schema(
        {"dry_run": FLAG, "changed": WHOLE, "skipped": WHOLE},
        ids={"type": "array", "items": WHOLE, "description": "of a dry run: the runs that are meant"},
        runs=CHANGED_RUNS,
    ),
    "Result": object_schema({"id": WHOLE, "result": TEXT}),
    "GraphRun": object_schema(
        {"id": WHOLE, "state": NULLABLE_TEXT, "task": NULLABLE_TEXT, "parents": {"type": "array", "items": PARENT}},
        queue=NULLABLE_TEXT,
        attempt=nullable(WHOLE),
        max_attempts=nullable(WHOLE),
        started_at=MOMENT,
        finished_at=MOMENT,
        reason=NULLABLE_TEXT,
        error=NULLABLE_TEXT,
        now=INSTANT,
    ),
    "Graph": object_schema({"runs": array_of("GraphRun")}),
    "RetriedGraph": object_schema({"runs": {"type": "array", "items": object_schema({"id": WHOLE, "state": TEXT})}}),
    "CancelledGraph": object_schema({"runs": CHANGED_RUNS}),
}
