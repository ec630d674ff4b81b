"""Tracing only observes attempts: they are still made inline, and have the same outcomes."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from pgsched import App, Discard, Run
from pgsched.config import WorkerSettings
from pgsched.core.model import Claim, Outcome
from pgsched.db.queries.runs.workers import Registration
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker.observers.tracing import Tracing, trace_attempts, wrap_handlers
from pgsched.worker.worker import Worker
from tests.support.stage import Stage, play

OWN: contextvars.ContextVar[str] = contextvars.ContextVar("OWN", default="clean")


class Spans(Tracing):
    """A tracer that records for which attempts a span began, and with which outcome it ended."""

    def __init__(self, stage: Stage) -> None:
        super().__init__("", "worker", stage.runner.attempt_of)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.spans: list[trace.Span] = []

    def begin(self, claim: Claim) -> tuple[trace.Span, Any]:
        self.begun.append(claim.task)
        span, token = super().begin(claim)
        self.spans.append(span)
        return span, token

    def end(self, span: trace.Span, claim: Claim, outcome: Outcome | None) -> None:
        self.ended.append("stopped" if outcome is None else str(outcome.result))
        super().end(span, claim, outcome)


async def returns() -> int:
    return 5


async def waits() -> int:
    await asyncio.sleep(0)
    return 6


async def takes_its_run(run: Run) -> int:
    return run.attempt


async def fails() -> None:
    raise ValueError("no")


async def waits_and_fails() -> None:
    await asyncio.sleep(0)
    raise Discard("never again")


async def changes_its_context() -> str:
    before = OWN.get()
    OWN.set("spoiled")
    return before


async def cancels_itself() -> None:
    raise asyncio.CancelledError


HANDLERS = [returns, waits, takes_its_run, fails, waits_and_fails, changes_its_context, cancels_itself]


def outcomes(handler: Callable[..., Any], *, tracing: bool) -> tuple[list[tuple[str, Outcome]], list[str], int]:
    """Return the outcomes of three attempts, the outcomes in their spans, and how many the executor made."""
    stage = Stage({"it": handler})
    spans, executor, executed = Spans(stage), stage.runner.executors["task"], 0

    def noted(claim: Claim) -> Any:
        nonlocal executed
        executed += 1
        return executor.execute(claim)

    if tracing:
        stage.runner.inline.handler_of = wrap_handlers(stage.runner.inline.handler_of, spans)

    async def scene(stage: Stage) -> None:
        stage.runner.drivers = {"task": type("Noting", (), {"execute": staticmethod(noted)})()}
        before = contexts.get_current()
        stage.give("it", "it", "it")
        await stage.all_told(3)
        assert contexts.get_current() == before

    play(stage, scene)
    assert spans.begun == (["it"] * 3 if tracing else [])
    return stage.told, spans.ended, executed


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_traced_attempt_is_made_inline_and_has_the_same_outcome(handler: Callable[..., Any]) -> None:
    told, ended, executed = outcomes(handler, tracing=True)
    assert executed == 0, "no attempt took another way"
    assert (told, [], 0) == outcomes(handler, tracing=False)
    assert ended == [str(outcome.result) for _, outcome in told]
    assert all("/pgsched/worker/" not in (outcome.traceback or "") for _, outcome in told)


def test_a_handler_runs_in_the_context_of_a_span() -> None:
    seen: list[trace.Span] = []

    async def looks() -> None:
        seen.append(trace.get_current_span())

    stage = Stage({"looks": looks})
    spans = Spans(stage)
    spans._tracer = TracerProvider().get_tracer("test")  # without one, all spans are the same
    stage.runner.inline.handler_of = wrap_handlers(stage.runner.inline.handler_of, spans)

    async def scene(stage: Stage) -> None:
        stage.give("looks", "looks")
        await stage.all_told(2)

    play(stage, scene)
    assert len(seen) == 2 and seen == spans.spans


def test_a_traced_worker_still_makes_its_attempts_inline() -> None:
    async def scene() -> bool:
        app = App("test")
        app.task(name="it")(returns)
        mine = Registration("w", "0", "shop", 8, None, ["task"], ["it"], 30.0)
        worker = Worker("", WorkerSettings(), {"task": PythonExecutor(app.tasks, 1)}, mine)
        trace_attempts(worker)
        handler = worker.runner.inline.handler_of(Claim(1, uuid4(), 1, 1, "default", 5, "task", "it", {}))
        return handler is not None

    assert asyncio.run(scene())
