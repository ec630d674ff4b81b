"""Calls in threads that can be left behind: whatever becomes of one, whoever awaits it is told."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.adapt import AdaptersMap

from pgsched.db.connection import routes
from pgsched.db.connection.connect import aconnect
from pgsched.threads import Threads
from tests.support.executing import holds


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


async def use(threads: Threads[Any], count: int) -> None:
    """Have so many threads that are idle now."""
    together = threading.Barrier(count)
    await asyncio.wait_for(asyncio.gather(*(threads.submit(lambda: together.wait(5)) for _ in range(count))), 10)
    await holds(lambda: threads._idle == min(count, threads._size))


def handler_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "pgsched-handler"}


def test_idle_threads_run_calls_side_by_side() -> None:
    async def main() -> None:
        threads: Threads[Any] = Threads(4)
        await use(threads, 4)
        idle = handler_threads()
        for _ in range(20):
            await use(threads, 4)
        assert not handler_threads() - idle, "an idle thread takes a call before a new one is started"
        await use(threads, 8)  # four of them in threads of their own
        threads.close()

    asyncio.run(main())


def test_a_call_does_not_wait_behind_a_long_one() -> None:
    async def main() -> None:
        threads: Threads[Any] = Threads(2)
        await use(threads, 2)
        go = threading.Event()
        long = threads.submit(lambda: go.wait(10))
        quick = [threads.submit(lambda: 1) for _ in range(5)]
        assert await asyncio.wait_for(asyncio.gather(*quick), 5) == [1] * 5
        assert not long.done()
        go.set()
        assert await asyncio.wait_for(long, 5)
        threads.close()

    asyncio.run(main())


def test_only_so_many_threads_stay_and_none_after_the_end() -> None:
    async def main() -> None:
        others = handler_threads()  # of earlier tests, about to end
        threads: Threads[Any] = Threads(2)
        await use(threads, 6)
        await holds(lambda: len(handler_threads() - others) == 2)
        threads.close()
        await holds(lambda: not handler_threads() - others)
        assert await asyncio.wait_for(threads.submit(lambda: 1), 5) == 1
        await holds(lambda: not handler_threads() - others)

    asyncio.run(main())


def test_an_idle_thread_keeps_nothing_of_its_last_call() -> None:
    class Kept:
        pass

    async def main() -> None:
        threads: Threads[Any] = Threads(1)
        await use(threads, 1)
        kept = Kept()
        gone = weakref.ref(kept)
        await threads.submit(lambda kept=kept: None)  # type: ignore[misc]
        del kept

        def is_gone() -> bool:
            gc.collect()
            return gone() is None

        await holds(is_gone)
        threads.close()

    asyncio.run(main())


def test_threads_serve_a_second_event_loop() -> None:
    """Also when the first one has been closed before it took a result."""
    threads: Threads[Any] = Threads(2)

    async def leaves() -> None:
        threads.submit(lambda: time.sleep(0.05))
        time.sleep(0.1)  # noqa: ASYNC251 - the result is on its way when this loop ends

    async def waits() -> int:
        return int(await asyncio.wait_for(threads.submit(lambda: 1), 5))

    asyncio.run(leaves())
    assert [asyncio.run(waits()) for _ in range(2)] == [1, 1]
    threads.close()


def test_a_connection_through_a_pooler_is_opened_although_handlers_sit_in_all_threads_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, go = SimpleNamespace(adapters=AdaptersMap(psycopg.adapters)), threading.Event()

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
