"""Run attempts of batch handlers without a database or a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pgsched import App
from pgsched.core.model import Claim, Outcome, Result
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.leases import Leases


class Bench:
    """An attempt runner with a Python executor; `settled` holds the outcome of each claim."""

    def __init__(self, app: App, concurrency: int = 2) -> None:
        self.settled: dict[int, Outcome] = {}
        self.executor = PythonExecutor(app.tasks, concurrency, hooks=app.hooks)
        self.bugs: list[BaseException] = []
        self.runner = AttemptRunner(
            {"task": self.executor}, concurrency, Leases(60.0), self._settle, lambda: None, self.bugs.append
        )

    def _settle(self, claims: Sequence[Claim], outcome: Outcome) -> None:
        for claim in claims:
            assert claim.id not in self.settled
            self.settled[claim.id] = outcome

    def take(
        self, *numbers: int, task: str = "many", timeout_s: float | None = None, kill_after_s: float = 10
    ) -> list[Claim]:
        more = {
            "timeout": None if timeout_s is None else timedelta(seconds=timeout_s),
            "kill_after": timedelta(seconds=kill_after_s),
        }
        claims = [Claim(n, uuid4(), 1, 3, "default", 5, "task", task, {"n": n}, **more) for n in numbers]
        self.runner.take(claims, time.monotonic())
        return claims

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert self.bugs == []

    async def all_settled(self, count: int) -> None:
        await self.until(lambda: len(self.settled) == count)

    def results(self) -> dict[int, tuple[Result, Any]]:
        return {n: (outcome.result, outcome.value) for n, outcome in sorted(self.settled.items())}


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())
