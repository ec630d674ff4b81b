"""Calls in threads that can be left behind: whatever becomes of one, whoever awaits it is told."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from pgsched.db.connection import routes
from pgsched.db.connection.connect import aconnect
from pgsched.threads import Threads


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ValueError("no"), "ValueError('no')"),
        (StopIteration(), "RuntimeError('a call in a thread raised StopIteration')"),
        (SystemExit(3), "RuntimeError('a call in a thread raised SystemExit')"),
        (KeyboardInterrupt(), "RuntimeError('a call in a thread raised KeyboardInterrupt')"),
        (asyncio.CancelledError(), "RuntimeError('a call in a thread raised CancelledError')"),
    ],
)
def test_what_a_call_raises_is_told_and_its_thread_goes_on(raised: BaseException, told: str) -> None:
    def call() -> str:
        raise raised

    async def main() -> None:
        threads: Threads[str] = Threads(1)
        for _ in range(2):
            with pytest.raises((ValueError, RuntimeError)) as found:
                await asyncio.wait_for(threads.submit(call), 5)
            assert repr(found.value) == told
        assert await asyncio.wait_for(threads.submit(lambda: "well"), 5) == "well"
        threads.close()

    asyncio.run(main())


def test_a_connection_through_a_pooler_is_opened_although_handlers_sit_in_all_threads_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, go = SimpleNamespace(), threading.Event()

    async def through(*_: object) -> Any:
        return made

    monkeypatch.setattr(routes, "pooled", lambda dsn: True)
    monkeypatch.setattr(routes, "way", lambda dsn, bare: "a way")
    monkeypatch.setattr(routes, "through_async", through)

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        sitting = asyncio.create_task(asyncio.to_thread(go.wait))
        await asyncio.sleep(0)
        try:
            assert await asyncio.wait_for(aconnect("host=pooler"), 5) is made
        finally:
            go.set()
            await sitting

    asyncio.run(main())
