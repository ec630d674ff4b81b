"""A worker in the test's own process, and a handler that waits until the test lets it go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pgsched.config import WorkerSettings
from pgsched.core.model import Claim, Outcome, Result
from pgsched.db.queries.runs import workers
from pgsched.worker import heartbeat
from pgsched.worker.worker import Worker
from tests.support.waiting import wait_until

SETTINGS = WorkerSettings(concurrency=2, lease_s=3, poll_s=0.1, grace_s=0, leader=False)
Claiming = Callable[..., Awaitable[list[Claim]]]


class Handler:
    """An executor that the test controls: attempts end when `go` is set, or when they are cancelled."""

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
    """Do the same as `wait_until`, without blocking the event loop."""
    await asyncio.to_thread(wait_until, condition, within_s, what)


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(40):
            await scene()

    asyncio.run(within())


def noted_looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list of the instants at which notifications have made the worker look for cancelled runs."""
    monkeypatch.setattr(heartbeat, "LOOK_S", 600.0)  # it does not look by itself
    looks, really = list[float](), heartbeat.find_cancelled

    def noted(*given: Any) -> Any:
        found = really(*given)
        looks.append(time.monotonic())
        return found

    monkeypatch.setattr(heartbeat, "find_cancelled", noted)
    return looks
