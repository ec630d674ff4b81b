"""Run executors in tests, with claims made by hand, and find the processes that they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pgsched.core.model import Claim, Outcome
from pgsched.execute.base import Executor

SLOT = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)


def claim(kind: str, task: str, args: Any = None, *, kill_after_s: float = 5.0, **more: Any) -> Claim:
    """Return the claim of a first attempt."""
    values: dict[str, Any] = {
        "id": 7, "token": uuid4(), "attempt": 1, "max_attempts": 3, "queue": "default", "priority": 5, "kind": kind,
        "task": task, "args": {} if args is None else args, "job_id": 3, "scheduled_at": SLOT,
        "kill_after": timedelta(seconds=kill_after_s),
    }  # fmt: skip
    return Claim(**{**values, **more})


def execute(executor: Executor, given: Claim) -> Outcome:
    """Run one claim to its outcome on a new event loop, and close the executor."""

    async def main() -> Outcome:
        try:
            return await executor.execute(given)
        finally:
            await executor.close()

    return asyncio.run(main())


@contextmanager
def executing(executor: Executor) -> Iterator[Callable[[Claim], Outcome]]:
    """Yield a function that runs claims one after the other on one event loop; close the executor afterwards."""
    with asyncio.Runner() as runner:
        try:
            yield lambda given: runner.run(executor.execute(given))
        finally:
            runner.run(executor.close())


def cancel_when(executor: Executor, given: Claim, condition: Callable[[], object], times: int = 1) -> BaseException:
    """Run a claim, cancel it once the condition holds, and return the exception."""

    async def main() -> BaseException:
        work = asyncio.ensure_future(executor.execute(given))
        try:
            await holds(condition)
            for _ in range(times):
                work.cancel()
                await asyncio.sleep(0)
            await work
            raise AssertionError("it was not cancelled")
        except asyncio.CancelledError as stopped:
            return stopped
        finally:
            await executor.close()

    return asyncio.run(main())


async def holds(condition: Callable[[], object], timeout_s: float = 15.0) -> None:
    """Wait on the event loop until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the condition depends on more than this event loop
            await asyncio.sleep(0.01)


def children_of(token: UUID) -> list[int]:
    """Return the live processes that have this claim's token in their environment, even if their parent has changed."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if str(token).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # the process has ended, or is a zombie
            continue
    return found
