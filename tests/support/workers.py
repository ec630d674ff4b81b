"""A worker in this process, and handlers that wait until a test lets them go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from pgsched.config import WorkerSettings
from pgsched.core.model import Claim, Outcome, Result
from pgsched.db.queries.runs import workers
from pgsched.worker.worker import Worker
from tests.support.waiting import wait_until

SETTINGS = WorkerSettings(concurrency=2, lease_s=3, poll_s=0.1, grace_s=0, leader=False)
Claiming = Callable[..., Awaitable[list[Claim]]]


class Handler:
    """An executor in the test's hands: attempts begin, and end when `go` is set or they are cancelled."""

    abandoned = 0

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.go = asyncio.Event()
        self.begun: list[Claim] = []
        self.cancelled: list[Claim] = []
        self.outcome = outcome or Outcome(Result.SUCCEEDED)
        self.on_cancel: Callable[[], object] = lambda: None

    async def execute(self, claim: Claim) -> Outcome:
        self.begun.append(claim)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(claim)
            self.on_cancel()
            raise
        return self.outcome

    async def close(self) -> None:
        pass


def registration(lease_s: float = 3.0) -> workers.Registration:
    return workers.Registration("w", "0", None, 2, None, ["task"], ["t"], lease_s)


def make(dsn: str, handler: Handler, **settings: Any) -> Worker:
    return Worker(dsn, replace(SETTINGS, **settings), {"task": handler}, registration())


async def becomes(condition: Callable[[], Any], what: str, within_s: float = 10.0) -> None:
    """`wait_until` that lets the loop go on."""
    await asyncio.to_thread(wait_until, condition, within_s, what)


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(40):
            await scene()

    asyncio.run(within())
