"""Run attempts in child processes, with the handlers of tests/support/apps/processes.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pgsched.app.base import import_app
from pgsched.core.model import Claim, Outcome
from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import claim, execute

app = import_app("tests.support.apps.processes:app")


def made(size: int = 2) -> PythonExecutor:
    return PythonExecutor(app.tasks, size, app)


def job(task: str, kill_after_s: float = 5.0, **args: Any) -> Claim:
    return claim("task", task, args, kill_after_s=kill_after_s)


def run(task: str, **args: Any) -> Outcome:
    return execute(made(), job(task, **args))


def play(scene: Callable[[PythonExecutor], Coroutine[Any, Any, None]], size: int = 1) -> None:
    """Run a scene with an executor, and close the executor afterwards."""

    async def main() -> None:
        executor = made(size)
        try:
            await scene(executor)
        finally:
            await executor.close()

    asyncio.run(main())


def is_running(pid: int) -> bool:
    """Return whether the process has a thread left: the first one may be a zombie while others still end."""
    try:
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        return threads > 1 or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
