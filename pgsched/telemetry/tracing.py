"""Traces: one trace holds the caller that enqueues, the run in its queue, its attempts, and the runs these enqueue.

Invariant: only the API of OpenTelemetry is used, and only where the program has set up tracing. Without tracing nothing
is imported and nothing is paid.

A run carries its context in `options.trace`, as W3C Trace Context defines it. Spans follow OpenTelemetry's conventions
for messaging (docs/how-to/tracing.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

SYSTEM = "pgsched"
KEYS = ("traceparent", "tracestate")
LONGEST = 800  # bytes of a tracestate; a longer one is left out, as the specification allows
Carrier = dict[str, str]


def is_enabled() -> bool:
    """Check whether this program has set up tracing."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def tracer() -> Any:
    """Return the tracer of pgsched; only where tracing is on."""
    from opentelemetry import trace

    return trace.get_tracer("pgsched")


def headers_of(context: Any = None) -> Carrier:
    """Return a context (None: the current one) as W3C headers; empty where there is no trace."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found: Carrier = {}
    TraceContextTextMapPropagator().inject(found, context)
    if len(found.get("tracestate", "").encode()) > LONGEST:
        del found["tracestate"]
    return found


def current_headers() -> Carrier:
    """Return the headers for a request, a child process or a statement: the current context, empty without tracing."""
    return headers_of() if is_enabled() else {}


def extract_context(headers: Any) -> Any:
    """Return the context of a carrier; None if it holds none."""
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if not isinstance(headers, Mapping):
        return None
    clean = {name: headers[name] for name in KEYS if isinstance(headers.get(name), str)}
    found = TraceContextTextMapPropagator().extract(clean, Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else None


def join_trace(headers: Any) -> AbstractContextManager[None]:
    """Join the trace of a carrier for the length of a block; None joins nothing."""
    return _joined(headers) if headers else nullcontext()


@contextmanager
def _joined(headers: Any) -> Iterator[None]:
    from opentelemetry import context

    found = extract_context(headers)
    token = context.attach(context.get_current() if found is None else found)
    try:
        yield
    finally:
        context.detach(token)


class NoSpan:
    """The span of an enqueue that is not traced: it does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note_runs(self, found: Any) -> None:
        """Note the run that was made, or the number of runs."""


QUIET = NoSpan()


def start_send_span(many: Sequence[dict[str, Any]], batch: bool = False) -> NoSpan:
    """Return a span around the enqueueing of these values, which get its context; its parent is the current span.

    `batch`: the call is one for many runs, even if there is only one.
    """
    return SendSpan(many, batch) if is_enabled() and many else QUIET


class SendSpan(NoSpan):
    """A span of the kind PRODUCER around an enqueue."""

    def __init__(self, many: Sequence[dict[str, Any]], batch: bool) -> None:
        self._many = many
        self._batch = batch

    def __enter__(self) -> Self:
        from opentelemetry.trace import SpanKind

        queues = {values.get("queue") or "default" for values in self._many}
        tasks = {values["task"] for values in self._many}
        name = f"send {next(iter(queues))}" if len(queues) == 1 else "send"
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM, "messaging.operation.name": "send", "messaging.operation.type": "send",
        }  # fmt: skip
        if len(queues) == 1:
            attributes["messaging.destination.name"] = next(iter(queues))
        if len(tasks) == 1:
            attributes["pgsched.task"] = next(iter(tasks))
        self._current = tracer().start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
        self._span = self._current.__enter__()
        if found := headers_of():
            text = json.dumps(found)
            for values in self._many:
                values["trace"] = text
        return self

    def __exit__(self, *what: Any) -> None:
        self._current.__exit__(*what)

    def note_runs(self, found: Any) -> None:
        """Note the id of the run, or the number of runs in a batch."""
        if self._batch:
            self._span.set_attribute("messaging.batch.message_count", found)
        else:
            self._span.set_attribute("messaging.message.id", str(int(found)))
            if (how := getattr(found, "how", "created")) != "created":
                self._span.set_attribute("pgsched.enqueue.outcome", how)


def links(carriers: Iterable[Any]) -> list[Any]:
    """Return links to the contexts of these carriers."""
    from opentelemetry import trace

    found = [extract_context(one) for one in carriers]
    return [trace.Link(trace.get_current_span(one).get_span_context()) for one in found if one is not None]
