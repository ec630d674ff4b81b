"""Tracing observes attempts: where they are made inline, they are so with it, and come to the same."""

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
    """Notes of which attempts a span began, and with which outcome it ended."""

    def __init__(self, stage: Stage) -> None:
        super().__init__("", "worker", stage.runner.attempt_of)
        self.begun: list[str] = []
        self.ended: list[str] = []

    def begin(self, claim: Claim) -> tuple[trace.Span, Any]:
        self.begun.append(claim.task)
        return super().begin(claim)

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
    """What three attempts come to, with which outcomes their spans ended, and how many the executor made."""
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
def test_an_attempt_is_made_inline_and_comes_to_the_same_with_a_span_around_it(handler: Callable[..., Any]) -> None:
    told, ended, executed = outcomes(handler, tracing=True)
    assert executed == 0, "no attempt took another way"
    assert (told, [], 0) == outcomes(handler, tracing=False)
    assert ended == [str(outcome.result) for _, outcome in told]
    assert all("/pgsched/worker/" not in (outcome.traceback or "") for _, outcome in told)


def test_what_is_called_sees_the_span_of_its_own_attempt() -> None:
    seen: list[bool] = []

    async def looks() -> None:
        seen.append(contexts.get_current() != contexts.Context())

    stage = Stage({"looks": looks})
    stage.runner.inline.handler_of = wrap_handlers(stage.runner.inline.handler_of, Spans(stage))

    async def scene(stage: Stage) -> None:
        stage.give("looks", "looks")
        await stage.all_told(2)

    play(stage, scene)
    assert seen == [True, True]


def test_a_worker_that_is_traced_makes_its_attempts_inline_all_the_same() -> None:
    async def scene() -> bool:
        app = App()
        app.task(name="it")(returns)
        mine = Registration("w", "0", "shop", 8, None, ["task"], ["it"], 30.0)
        worker = Worker("", WorkerSettings(), {"task": PythonExecutor(app.tasks, 1)}, mine)
        trace_attempts(worker)
        handler = worker.runner.inline.handler_of(Claim(1, uuid4(), 1, 1, "default", 5, "task", "it", {}))
        return handler is not None

    assert asyncio.run(scene())
