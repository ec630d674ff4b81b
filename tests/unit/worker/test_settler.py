"""The settler writes a batch of outcomes as soon as enough outcomes wait, or no other is to come."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from pgsched.core.model import DONE, Claim, Settlement
from pgsched.worker.settling import settler as settling
from pgsched.worker.settling.settler import ENOUGH, Settler
from tests.support.executing import holds


@pytest.mark.parametrize(
    ("waiting", "more", "written"),
    [(1, True, []), (ENOUGH - 1, True, []), (ENOUGH, True, [ENOUGH]), (1, False, [1])],
)
def test_few_outcomes_wait_for_more_and_many_do_not(
    waiting: int, more: bool, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    async def settle(_: Any, batch: list[Settlement], *__: Any) -> list[str]:
        sizes.append(len(batch))
        return ["succeeded"] * len(batch)

    async def connected(_: Settler) -> None: ...

    monkeypatch.setattr(settling, "settle", settle)
    monkeypatch.setattr(settling, "plan_settlements", connected)
    monkeypatch.setattr(Settler, "_connected", connected)

    async def scene() -> None:
        settler = Settler("", "host:1", 60.0)
        settler.more_to_come = lambda: more
        work = asyncio.create_task(settler.run())
        for n in range(waiting):
            settler.queue.put([Settlement.of(Claim(n, uuid4(), 1, 1, "default", 5, "task", "noop", {}), DONE)])
        for _ in range(10):
            await asyncio.sleep(0)
        if written:
            await holds(lambda: sizes == written)
        assert sizes == written
        work.cancel()
        await asyncio.wait({work})

    asyncio.run(scene())
