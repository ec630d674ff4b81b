"""A claimer in the test's own process, whose statements are noted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.runs.claims import WorkerOffer
from pgsched.db.queries.runs.queue_search import QueueSearch
from pgsched.worker.claiming import discovery, queue_claims
from pgsched.worker.claiming.claimer import Claimer
from tests.support.db.setting import KINDS


class Scene:
    """A claimer with `free` places; its statements, and when it begins its claims, are noted in order."""

    def __init__(self, dsn: str, monkeypatch: pytest.MonkeyPatch, free: int, poll_s: float = 1.0) -> None:
        self.free = free
        self.noted: list[str] = []
        wanted = WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"])
        self.claimer = Claimer(dsn, wanted, (), poll_s, lambda: self.free, self.take, lambda: True)
        for module, name in (queue_claims, "claim"), (queue_claims, "claim_many"), (discovery, "claimable_queues"):
            monkeypatch.setattr(module, name, self.noting(name, getattr(module, name)))

    def noting(self, name: str, really: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def noted(*args: Any, **options: Any) -> Any:
            self.noted.append(name)
            return await really(*args, **options)

        return noted

    def take(self, claims: list[Claim], _: float) -> None:
        self.free -= len(claims)
        asyncio.get_running_loop().call_soon(self.noted.append, "begun")

    async def round(self) -> list[str]:
        """Run one round of claiming; return what it did."""
        self.noted.clear()
        await self.claimer.run_once()
        return list(self.noted)


async def finds_no_queue(*_: Any, **__: Any) -> QueueSearch:
    """Answer that no queue has claimable runs."""
    return QueueSearch([], 120.0, None)


def play(it: Scene, scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def played() -> None:
        await scene(it)
        await it.claimer.close()

    asyncio.run(played())


@asynccontextmanager
async def running(it: Scene) -> AsyncIterator[None]:
    """Let the claimer run in a task of its own within the block."""
    work = asyncio.create_task(it.claimer.run())
    try:
        yield
    finally:
        it.claimer.stop()
        await work
