"""Tracing of attempts with OpenTelemetry: one span for each attempt or batched call.

Invariant: where the program has set up no tracing, none of this code is used.

- An attempt is a span of the kind CONSUMER, below the span that enqueued its run. A run that was enqueued without a
  trace begins one.
- When an attempt fails, its span's context is written to the row. So the next attempt is in the same trace and links to
  it.
- One call for many runs is one span with links to each of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from pgsched import log
from pgsched.app.control import Control
from pgsched.core.model import Claim, Key, Kind, Outcome, Result
from pgsched.db.connection.connect import AsyncConnection, DatabaseError, aconnect
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.runs.run_output import keep_traces
from pgsched.errors import PgschedError
from pgsched.execute.base import Executor
from pgsched.execute.outcomes import outcome_of_value
from pgsched.execute.python.executor import PythonExecutor, outcome_of_raise
from pgsched.execute.python.handler import InlineHandler
from pgsched.telemetry import tracing
from pgsched.worker.attempts.attempt import OUTCOMES, EndReason, RunningAttempt, job_of
from pgsched.worker.worker import Worker

logger = log.get("tracing")
KEEP_S = 2.0
BAD = {Result.FAILED, Result.TIMED_OUT, Result.CRASHED}
Described = Mapping[str, Any]
HandlerOf = Callable[[Claim], InlineHandler | None]


class TraceWriter:
    """The writer of failed attempts' contexts to their rows, several in one statement."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._conn: AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()
        self._waiting: list[tuple[int, int, str]] = []

    async def keep(self, claim: Claim, text: str) -> None:
        """Write this context for the next attempt of the run. Raises nothing, because only a trace would be lost."""
        self._waiting.append((claim.id, claim.attempt, text))
        try:
            async with asyncio.timeout(KEEP_S), self._lock:
                if self._waiting:  # otherwise another call has written it
                    await self._write()
        except (DatabaseError, PgschedError, TimeoutError) as error:
            logger.warning(
                "the trace of a failed attempt was not kept", run=claim.id, error=log.redact(first_line(error))
            )
            await self.close()

    async def _write(self) -> None:
        self._conn = self._conn or await aconnect(self._dsn, purpose="tracing", timeout_s=KEEP_S)
        batch, self._waiting = self._waiting, []
        ids, attempts, texts = (list(column) for column in zip(*batch, strict=True))
        await keep_traces(self._conn, ids, attempts, texts)

    async def close(self) -> None:
        """Disconnect."""
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()


class Tracing:
    """The tracing that a worker's attempts share."""

    def __init__(self, dsn: str, worker: str, control_of: Callable[[Key], Control | None]) -> None:
        self.keeper = TraceWriter(dsn)
        self._control_of = control_of
        self._worker = worker
        self._tracer = tracing.tracer()
        self._keeping: set[asyncio.Task[None]] = set()
        self._ended: dict[Key, dict[str, str]] = {}  # trace ids of attempts that ended badly, until their end is logged

    def begin(self, claim: Claim) -> tuple[trace.Span, Any]:
        """Return a new span for an attempt, and the context to make the attempt in."""
        carried = trace_of(claim)
        parent = tracing.extract_context(carried)
        span = self._tracer.start_span(
            f"process {claim.queue}",
            contexts.Context() if parent is None else parent,
            kind=SpanKind.CONSUMER,
            attributes=span_attributes(claim, self._worker),
            links=tracing.links([{"traceparent": last}]) if (last := carried.get("attempt")) else None,
        )
        return span, trace.set_span_in_context(span)

    def end(self, span: trace.Span, claim: Claim, outcome: Outcome | None) -> None:
        """End an attempt's span. `outcome` is None for a stopped attempt: its Running says why."""
        if outcome is None:
            running = self._control_of(claim.key)
            why = running.end_reason if isinstance(running, RunningAttempt) else None
            name = "stopped" if why is None else OUTCOMES[why].value if why in OUTCOMES else "lost"
            span.set_attribute("pgsched.outcome", name)
            span.set_attribute("error.type", name)
            span.set_status(Status(StatusCode.ERROR, None if why is None else why.value))
            bad = why in (EndReason.TIMEOUT, EndReason.CANCEL)
        else:
            span.set_attribute("pgsched.outcome", outcome.result.value)
            bad = outcome.result in BAD
            if bad:
                record_error(span, outcome)
        span.end()
        if bad:
            self._ended[claim.key] = log.ids_of_span(span)

    def log_fields(self, claim: Claim) -> dict[str, Any]:
        """Return the fields for the log line about an attempt's end: its job, and its trace if it ended badly."""
        return {**job_of(claim), **self._ended.pop(claim.key, {})}

    def left(self, span: trace.Span, claim: Claim) -> str | None:
        """Return the text that the next attempt needs for its trace, or None where there is no trace."""
        mine = tracing.headers_of(trace.set_span_in_context(span))
        if not mine:
            return None
        carried = trace_of(claim)
        first = (
            {name: carried[name] for name in tracing.KEYS if name in carried}
            if tracing.extract_context(carried)
            else mine
        )
        return json.dumps({**first, "attempt": mine["traceparent"]})

    def keep_soon(self, claim: Claim, text: str) -> None:
        """Write this context in a task, because the attempt is being stopped."""
        task = asyncio.get_running_loop().create_task(self.keeper.keep(claim, text))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    @contextmanager
    def call(self, claims: Sequence[Claim]) -> Iterator[Callable[[BaseException | None], object]]:
        """Make a span around one call that serves these attempts; yield a function that takes the call's error."""
        first = claims[0]
        attributes = {**span_attributes(first, self._worker), "messaging.batch.message_count": len(claims)}
        for name in [name for name in attributes if name in PER_RUN]:
            del attributes[name]
        with self._tracer.start_as_current_span(
            f"process {first.queue}", contexts.Context(), kind=SpanKind.CONSUMER, attributes=attributes,
            links=tracing.links(trace_of(claim) for claim in claims),
        ) as span:  # fmt: skip
            yield lambda error: None if error is None else span.record_exception(error)

    async def around(self, claim: Claim, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Make an attempt in a span of its own. `work` raises CancelledError when it is stopped."""
        span, context = self.begin(claim)
        token = contexts.attach(context)
        outcome: Outcome | None = None
        try:
            outcome = await work()
        except asyncio.CancelledError:
            if claim.attempt < claim.max_attempts and (text := self.left(span, claim)):
                self.keep_soon(claim, text)
            raise
        finally:
            contexts.detach(token)
            self.end(span, claim, outcome)
        again = outcome.result is not Result.SUCCEEDED and outcome.retry and claim.attempt < claim.max_attempts
        if (again or outcome.result is Result.SNOOZED) and (text := self.left(span, claim)):
            await self.keeper.keep(claim, text)
        return outcome

    async def close(self) -> None:
        """Wait shortly for contexts that are being written, then disconnect."""
        if self._keeping:
            await asyncio.wait(self._keeping, timeout=KEEP_S)
        await self.keeper.close()


class TracingExecutor:
    """An executor with a span around each attempt. `untraced`: tasks whose batched calls have a span instead."""

    def __init__(self, executor: Executor, shared: Tracing, untraced: frozenset[str] = frozenset()) -> None:
        self._executor = executor
        self._shared = shared
        self._untraced = untraced

    @property
    def abandoned(self) -> int:
        """The number of handlers that the wrapped executor has abandoned."""
        return self._executor.abandoned

    async def execute(self, claim: Claim) -> Outcome:
        """Run one attempt in a span."""
        if claim.task in self._untraced and claim.kind == Kind.TASK:
            return await self._executor.execute(claim)
        return await self._shared.around(claim, lambda: self._executor.execute(claim))

    async def close(self) -> None:
        """Close the wrapped executor."""
        await self._executor.close()


class TracingHandler:
    """An inline handler with a span around each call; it has the interface of the handler it wraps."""

    def __init__(self, handler: InlineHandler, shared: Tracing) -> None:
        self.run_name = handler.run_name
        self.retry_rule = handler.retry_rule
        self.decode = handler.decode
        self._handler = handler
        self._shared = shared

    async def function(self, **args: Any) -> Any:
        """Make the attempt that the log context names (`log.ATTEMPT`)."""
        value: Any = None
        failure: BaseException | None = None

        async def call() -> Outcome:
            nonlocal value, failure
            try:
                value = await self._handler.function(**args)
            except BaseException as error:
                failure = error
                return outcome_of_raise(error, self._handler, log.ATTEMPT.get().attempt, from_outside=True)
            return outcome_of_value(value)

        await self._shared.around(log.ATTEMPT.get(), call)
        if failure is not None:
            raise failure
        return value


def wrap_handlers(handler_of: HandlerOf, shared: Tracing) -> HandlerOf:
    """Return a function that finds the same handlers, each with a span around its calls."""
    known: dict[InlineHandler, TracingHandler] = {}

    def found(claim: Claim) -> InlineHandler | None:
        if (handler := handler_of(claim)) is None:
            return None
        return known.get(handler) or known.setdefault(handler, TracingHandler(handler, shared))

    return found


PER_RUN = {
    "messaging.message.id", "pgsched.attempt", "pgsched.max_attempts", "pgsched.job_id", "pgsched.scheduled_at",
    "pgsched.outside_name",
}  # fmt: skip


def span_attributes(claim: Claim, worker: str) -> dict[str, Any]:
    """Return the attributes of an attempt's span."""
    found: dict[str, Any] = {
        "messaging.system": tracing.SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": claim.queue,
        "messaging.message.id": str(claim.id),
        "messaging.client.id": worker,
        "pgsched.kind": str(claim.kind),
        "pgsched.attempt": claim.attempt,
        "pgsched.max_attempts": claim.max_attempts,
    }
    if claim.kind == Kind.TASK:  # a command line, a statement or a URL may hold secrets
        found["pgsched.task"] = claim.task
    if claim.job_id is not None:
        found["pgsched.job_id"] = claim.job_id
    if claim.scheduled_at is not None:
        found["pgsched.scheduled_at"] = claim.scheduled_at.isoformat()
    if claim.outside_name is not None:
        found["pgsched.outside_name"] = claim.outside_name
    return found


def trace_of(claim: Claim) -> Described:
    """Return the trace in the row's options; empty where there is none."""
    carried = claim.options.get("trace") if isinstance(claim.options, dict) else None
    return carried if isinstance(carried, dict) else {}


def record_error(span: trace.Span, outcome: Outcome) -> None:
    """Add the error of a bad outcome to the span."""
    error = outcome.error or outcome.result.value
    kind = error.partition(":")[0]
    kind = kind if outcome.result is Result.FAILED and kind.isidentifier() else outcome.result.value
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, error[:500]))
    if outcome.traceback is not None:
        span.add_event("exception", {
            "exception.type": kind, "exception.message": error, "exception.stacktrace": outcome.traceback,
        })  # fmt: skip


def trace_attempts(worker: Worker) -> Tracing:
    """Wrap the executors and handlers of a worker so that its attempts are traced."""
    shared = Tracing(worker.dsn, worker.registration.name, worker.runner.attempt_of)
    python = worker.runner.executors.get(Kind.TASK)
    gathered: frozenset[str] = frozenset()
    if isinstance(python, PythonExecutor):
        gathered, python.batches.call_context = python.batches.batched_tasks, shared.call
    inline = worker.runner.inline
    inline.handler_of = wrap_handlers(inline.handler_of, shared)
    worker.runner.drivers = {
        kind: TracingExecutor(one, shared, gathered) for kind, one in worker.runner.executors.items()
    }
    worker.outcomes.log_fields = shared.log_fields
    worker.named = True
    return shared
