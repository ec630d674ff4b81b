"""Handlers that return their trace id, enqueue runs, or fail; each process appends its spans to TRACED_SPANS."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from pgsched import App, Run
from pgsched.app.batch_item import Item

FILE = "TRACED_SPANS"
app = App("traced")


class ToFile(SpanExporter):
    """An exporter that appends one line of JSON for each span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ[FILE]).open("a") as file:
            for span in spans:
                file.write(span.to_json(indent=None) + "\n")
        return SpanExportResult.SUCCESS


if FILE in os.environ:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    trace.set_tracer_provider(provider)


def here() -> str:
    """Return the id of the caller's trace."""
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


@app.task(name="parent")
async def parent() -> str:
    child.enqueue()
    return here()


@app.task(name="child")
def child() -> str:
    logging.getLogger("mine").warning("said by logging")
    structlog.get_logger().info("said by structlog")
    return here()


@app.task(name="in_process", run_in="process")
def in_process() -> str:
    with trace.get_tracer("mine").start_as_current_span("inside"):
        child.enqueue()
    return here()


@app.task(name="fails_once")
def fails_once(run: Run) -> str:
    if run.attempt == 1:
        raise ValueError("the first time")
    return here()


@app.task(name="gathers", batch=3, batch_wait=5)
async def gathers(items: list[Item]) -> list[str]:
    return [here() for _ in items]


def graph() -> list[int]:
    """Enqueue two runs, of which the second waits for the first; return their ids."""
    with app.graph() as made:
        made.add(child, after=[made.add(child)])
    return made.ids
