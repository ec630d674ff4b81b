"""Calls in threads that can be left behind: whatever becomes of one, whoever awaits it is told."""

from __future__ import annotations

import asyncio

import pytest

from pgsched.execute.threads import Threads


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
