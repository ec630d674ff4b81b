"""The table of operations of the JSON API. Its routes (`calling`) and the OpenAPI document are made from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from pgsched.core import policies
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.reports.audit import KINDS
from pgsched.services import long_charts
from pgsched.services.charts import RANGES
from pgsched.services.runs.changes import MOST
from pgsched.web.api import enqueue_body, locks
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
    integer_schema,
    object_schema,
    one_of,
    text_schema,
)  # fmt: skip
from pgsched.web.api.waiting import LONGEST_S
from pgsched.web.security.secrets import Role

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
    `for_producers`: programs with a producer's token may call it as well.
    `needs`: further values of the request that `call` gets, by their names in REQUEST_VALUES.
    `headers`: the schemas of the request's headers that it reads.
    `creates`: the answer has the status 201 where something was made.
    `waits`: with `wait` in the URL, the answer waits for the end of the run in the path.
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
    for_producers: bool = False
    needs: tuple[str, ...] = ()
    headers: Mapping[str, Schema] = field(default_factory=dict)
    creates: bool = False
    waits: bool = False

    @property
    def parameters(self) -> list[str]:
        """Return the names of the parameters in the path."""
        return re.findall(r"\{(\w+)\}", self.path)

    def allows(self, role: Role) -> bool:
        """Check whether visitors of this role may call the operation."""
        if role == "produce":
            return self.for_producers
        return role in ("write", self.permission)


def ref(name: str) -> Schema:
    """Return a reference to a schema of the OpenAPI document."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(plural: str, name: str) -> Schema:
    """Return the schema of an answer with a list of things, named `plural`."""
    return object_schema({plural: array_of(name)})


COUNT = {"count": integer_schema(1, 1000)}
PAUSED = {"what": one_of(policies.PAUSED), "name": text_schema(200)}
JOB_BODY = {**COLUMNS, "like": one_of(policies.PRESETS)}
BULK_BODY = {"ids": {"type": "array", "items": ID, "maxItems": MOST}, **FILTERS, **DRY_RUN}
BACKFILL_ANSWER = {"anyOf": [ref("Backfill"), ref("BackfillPreview")]}
op = Operation
look = partial(Operation, "GET", permission="read")
OPERATIONS = (
    look("/status", "The whole system and its health", do.show_status, ref("Status")),
    look("/jobs", "Jobs by name", do.list_jobs, list_of("jobs", "Job"),
      {"state": one_of(jobs.STATES), "queue": text_schema(), "after": text_schema(),
       "limit": integer_schema(1, 1000)}),
    op("POST", "/jobs", "Create a job: any column of the table, or a preset", do.add_job, ref("Job"), {}, JOB_BODY,
      ("name", "task")),
    op("POST", "/jobs/{job}/pause", "Stop its schedule", do.pause_job, ref("Job"), {}, REASON, needs=("user",)),
    op("POST", "/jobs/{job}/resume", "Start its schedule again", do.resume_job, ref("Job"), {},
      {"from": one_of(("now", "pause"))}),
    op("POST", "/jobs/{job}/run", "Run it now, beside its schedule", do.run_job, ref("Run"), {},
      {"args": ANY, "overlap": one_of(policies.OVERLAP)}),
    look("/jobs/{job}/preview", "Its next slots", do.foresee_job, ref("Preview"), COUNT),
    look("/jobs/{job}/explain", "What happened to a slot, and why", do.explain, ref("Explanation"),
      {"at": text_schema(50)}),
    op("POST", "/jobs/{job}/backfills", "Run it for past slots, or with dry_run say which", do.backfill,
      BACKFILL_ANSWER, {}, RANGE, ("from", "to")),
    look("/jobs/{job}/slots", "Its newest slots and what became of them", tell.list_slots,
      list_of("slots", "Slot"), {"from": text_schema(50), "until": text_schema(50), "limit": integer_schema(1, 1000)}),
    look("/jobs/{job}/rates", "Its durations and outcomes, also of runs that are gone", tell.show_job_rates,
      ref("JobRates"), {"range": one_of(long_charts.OF_A_JOB)}),
    look("/jobs/{job}/dates", "The dates on which it does not run", do.list_dates, list_of("dates", "Dates")),
    op("POST", "/jobs/{job}/dates", "Exclude dates: both count, in its time zone", do.exclude_dates, ref("Dates"), {},
      {**DATES, **REASON}, ("from",)),
    op("DELETE", "/jobs/{job}/dates", "Let it run on them again", do.allow_dates, list_of("dates", "Dates"),
      {"from": text_schema(10, required=True), "to": text_schema(10)}),
    look("/jobs/{job}", "One job, whole", do.show_job, ref("Job")),
    op("PATCH", "/jobs/{job}", "Change columns; null puts a default back", do.change_job, ref("Job"), {}, JOB_BODY),
    op("DELETE", "/jobs/{job}", "Delete it; its unstarted runs are cancelled", do.delete_job, ref("DeletedJob")),
    look("/schedule/preview", "What a schedule means, and its next slots", do.foresee, ref("SchedulePreview"),
      {"expression": text_schema(512, required=True), "timezone": text_schema(100), "from": text_schema(50), **COUNT}),
    look("/backfills", "The newest backfills", do.list_backfills, list_of("backfills", "Backfill"),
      {"limit": integer_schema(1, 1000)}),
    look("/backfills/{id}", "One backfill", do.show_backfill, ref("Backfill")),
    op("POST", "/backfills/{id}/cancel", "End it with its open runs", do.cancel_backfill, ref("Result"), {}, REASON),
    look("/runs", "The newest runs that the filters mean", do.list_runs, list_of("runs", "Run"),
      {**FILTERS, "limit": integer_schema(1, 1000), "before": ID}),
    op("POST", "/runs", "Make a run of a task, or find the run with its key", enqueue_body.enqueue_run,
      ref("Enqueued"), {}, enqueue_body.BODY, ("task",), for_producers=True,
      headers={"Idempotency-Key": text_schema(500)}, creates=True),
    op("POST", "/runs/retry", "Revive many: by ids, or by a filter (the dead ones)", do.retry_many, ref("Changed"), {},
      BULK_BODY),
    op("POST", "/runs/cancel", "Cancel many: by ids, or by a filter", do.cancel_many, ref("Changed"), {},
      {**BULK_BODY, **REASON}),
    look("/runs/{id}", "One run, with its attempts; with wait, once it has ended or after so many seconds",
      do.show_run, ref("Run"), {"wait": integer_schema(0, LONGEST_S)}, for_producers=True, waits=True),
    op("PATCH", "/runs/{id}", "Change it before it starts", do.update_run, ref("Run"), {},
      {"priority": integer_schema(0, 9), "at": text_schema(50), "queue": text_schema(200)}),
    op("POST", "/runs/{id}/retry", "Revive it", do.retry_run, ref("Result"), {}, {}),
    op("POST", "/runs/{id}/cancel", "Cancel it, or ask its worker to", do.cancel_run, ref("Result"), {}, REASON),
    look("/runs/{id}/tree", "The graph of runs that it belongs to", do.run_tree, ref("Graph")),
    op("POST", "/runs/{id}/tree/retry", "Revive what failed of that graph", do.retry_tree, ref("RetriedGraph"), {}, {}),
    op("POST", "/runs/{id}/tree/cancel", "Cancel what is unfinished of it", do.cancel_tree, ref("CancelledGraph"), {},
      REASON),
    look("/runs/{id}/log", "A page of its output", do.run_log, list_of("lines", "Line"),
      {"attempt": integer_schema(1, 2**31 - 1), "stream": one_of(("stdout", "stderr", "log")),
       "after_attempt": integer_schema(0, 2**31 - 1), "after_seq": integer_schema(-1, 2**31 - 1)}),
    look("/tasks", "The tasks that are known, with the schemas of their arguments", tell.list_tasks,
      list_of("tasks", "Task"), {"limit": integer_schema(1, 1000)}),
    look("/tasks/{name}", "One task, once for each app that has it", tell.show_task, list_of("tasks", "Task"),
      for_producers=True),
    look("/queues", "Queues with settings, a pause or open runs", do.list_queues, list_of("queues", "Queue")),
    op("PUT", "/queues/{name}", "Set something for a queue; null takes it away", do.set_queue, ref("Queue"), {}, QUEUE),
    look("/limits", "Limits of keys", do.list_limits, list_of("limits", "Limit")),
    op("PUT", "/limits/{name}", "Set a limit of keys; null takes it away", do.set_limit, ref("Limit"), {}, LIMIT),
    op("DELETE", "/limits/{name}", "Remove a limit", do.remove_limit, ref("RemovedLimit")),
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
    look("/doctor", "What `pgsched doctor` said last", tell.diagnose, ref("Doctor"),
         needs=("diagnosis",)),
    look("/workers", "The workers that are alive", do.list_workers, list_of("workers", "Worker")),
    op("POST", "/workers/{id}/drain", "Let it take no more and end", do.drain_worker, ref("DrainedWorker"), {}, {},
      needs=("user",)),
    look("/locks", "Locks that are in use, or all", locks.list_locks, list_of("locks", "Lock"),
      {"prefix": text_schema(200), "kind": one_of(policies.LOCK_KINDS), "all": {"type": "boolean"},
       "after": text_schema(200), "limit": integer_schema(1, 1000)}),
    op("POST", "/locks/break", "Take a lock from its holders, or from the one with this fence", locks.break_lock,
      ref("BrokenLock"), {}, {"name": text_schema(200), "fence": ID}, ("name",)),
    look("/locks/{name}", "One lock: who holds it, and who waits, in their order", locks.show_lock, ref("LockLine")),
)  # fmt: skip
