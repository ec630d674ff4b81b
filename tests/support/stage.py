"""Run attempts without a database or a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pgsched import App
from pgsched.core.model import Claim, Outcome
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.leases import Leases
from tests.support.executing import holds

Scene = Callable[["Stage"], Awaitable[None]]


class Stage:
    """An attempt runner with handlers of the test; `told` holds what was settled, each with the task's name."""

    def __init__(self, handlers: dict[str, Any], concurrency: int = 1) -> None:
        app = App("test")
        for name, handler in handlers.items():
            app.task(name=name)(handler)
        self.told: list[tuple[str, Outcome]] = []
        self.bugs: list[BaseException] = []
        self.runner = AttemptRunner(
            {"task": PythonExecutor(app.tasks, concurrency)},
            concurrency,
            Leases(30),
            lambda claims, outcome: self.told.extend((claim.task, outcome) for claim in claims),
            lambda: None,
            self.bugs.append,
        )
        self.ids = iter(range(1, 100_000))
        self.grace = timedelta(0)

    def give(self, *names: str, args: dict[str, Any] | None = None, **more: Any) -> list[Claim]:
        """Hand claims of these tasks to the runner; return the claims."""
        args = args or {}
        claims = [
            Claim(next(self.ids), uuid4(), 1, 1, "default", 5, "task", name, args, kill_after=self.grace, **more)
            for name in names
        ]
        self.runner.take(claims, asyncio.get_running_loop().time())
        return claims

    def results(self) -> list[tuple[str, str]]:
        return [(name, str(outcome.result)) for name, outcome in self.told]

    async def all_told(self, count: int) -> None:
        await holds(lambda: len(self.told) >= count)


async def loop_turns() -> None:
    """Let the event loop do all that it can do without waiting: then what has not happened is not under way."""
    for _ in range(100):
        await asyncio.sleep(0)


def play(stage: Stage, scene: Scene) -> None:
    asyncio.run(asyncio.wait_for(scene(stage), 20))
    assert stage.bugs == []


def staged(handlers: dict[str, Any], *, at_once: bool) -> Stage:
    """Return a stage whose runner makes the first step of each attempt itself, or leaves that to the executor."""
    stage = Stage(handlers)
    executor = stage.runner.executors["task"]
    assert isinstance(executor, PythonExecutor)
    executor.attach(stage.runner.attempt_of, "")
    if not at_once:
        stage.runner.inline.handler_of = lambda _: None
    return stage


async def quick() -> None:
    pass


async def briefly() -> None:
    await asyncio.sleep(0)


async def busy() -> None:
    time.sleep(0.001)  # noqa: ASYNC251
