"""Run attempts of plain functions without a database or a worker."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import holds
from tests.support.stage import Stage, play


def python(stage: Stage) -> PythonExecutor:
    found = stage.runner.executors["task"]
    assert isinstance(found, PythonExecutor)
    return found


def give_all(stage: Stage, *names: str, **more: Any) -> None:
    """Hand claims of these tasks to the runner, and wait until all have ended."""

    async def scene(stage: Stage) -> None:
        stage.give(*names, **more)
        await stage.all_told(len(names))
        await holds(stage.runner.is_idle)

    play(stage, scene)


class Long:
    """A function whose call with `i = 0` lasts until the test sets `go`."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.seen: list[int] = []

    def __call__(self, i: int = -1) -> int:
        self.seen.append(i)
        if i == 0:
            self.begun.set()
            assert self.go.wait(10)
        return i

    def stage(self, concurrency: int = 1) -> Stage:
        def work(i: int = -1) -> int:
            return self(i)

        return Stage({"t": work}, concurrency)

    async def has_begun(self, stage: Stage, count: int = 4, grace: timedelta | None = None, **more: Any) -> list[Any]:
        """Hand over `count` claims, of which the first lasts, and wait until that one has begun; return the claims."""
        stage.grace = grace or timedelta(0)
        claims = stage.give("t", args={"i": 0}, **more)
        claims += [stage.give("t", args={"i": i + 1}, **more)[0] for i in range(count - 1)]
        await holds(self.begun.is_set)
        return claims
