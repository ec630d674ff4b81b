"""Calls in threads that can be left behind: the caller always gets the result or an error."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.adapt import AdaptersMap

from pgsched.db.connection import routes
from pgsched.db.connection.connect import aconnect
from pgsched.threads import BoundedThreads, NotBegun, Threads
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
def test_an_error_of_a_call_reaches_its_caller_and_the_thread_goes_on(raised: BaseException, told: str) -> None:
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


def test_calls_made_one_after_another_run_in_one_thread() -> None:
    async def main() -> set[int]:
        threads: Threads[int] = Threads(1)
        found = {await threads.submit(threading.get_ident) for _ in range(5000)}
        threads.close()
        return found

    assert len(asyncio.run(main())) == 1


async def use(threads: Threads[Any], count: int) -> None:
    """Make `count` calls side by side, and wait until their threads are idle."""
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
        await use(threads, 8)  # four of these calls get extra threads
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


def test_idle_threads_stay_only_up_to_the_size_and_none_after_close() -> None:
    async def main() -> None:
        others = handler_threads()  # threads of earlier tests, which are about to end
        threads: Threads[Any] = Threads(2)
        await use(threads, 6)
        await holds(lambda: len(handler_threads() - others) == 2)
        threads.close()
        await holds(lambda: not handler_threads() - others)
        assert await asyncio.wait_for(threads.submit(lambda: 1), 5) == 1
        await holds(lambda: not handler_threads() - others)

    asyncio.run(main())


def test_an_idle_thread_keeps_no_reference_to_its_last_call() -> None:
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
    """This holds even if the first loop was closed before it took a result."""
    threads: Threads[Any] = Threads(2)

    done = threading.Event()

    async def leaves() -> None:
        threads.submit(done.set)
        assert done.wait(10)  # the result is on its way when this loop ends

    async def waits() -> int:
        return int(await asyncio.wait_for(threads.submit(lambda: 1), 5))

    asyncio.run(leaves())
    assert [asyncio.run(waits()) for _ in range(2)] == [1, 1]
    threads.close()


def test_a_pooled_connection_opens_while_handlers_occupy_all_loop_threads(
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


# ---- BoundedThreads


def test_no_more_calls_run_at_once_than_there_may_be_threads_and_the_others_follow_in_order() -> None:
    threads, go, begun = BoundedThreads(2), threading.Event(), []
    both_began = threading.Barrier(3)

    def call(n: int) -> int:
        begun.append(n)
        if n < 2:
            both_began.wait(10)
        assert go.wait(10)
        return n

    async def main() -> list[int]:
        calls = [asyncio.create_task(threads.run(lambda n=n: call(n))) for n in range(20)]
        await asyncio.to_thread(both_began.wait, 10)
        assert sum(thread.name == "pgsched-call" for thread in threading.enumerate()) == 2
        go.set()
        return await asyncio.gather(*calls)

    assert asyncio.run(main()) == list(range(20))
    assert sorted(begun[:2]) == [0, 1] and sorted(begun) == list(range(20))


def test_the_calls_of_several_loops_share_the_threads_and_an_error_reaches_its_caller() -> None:
    threads = BoundedThreads(1)

    def main(n: int) -> list[Any]:
        async def both() -> list[Any]:
            return await asyncio.gather(threads.run(lambda: n), threads.run(lambda: 1 // 0), return_exceptions=True)

        return asyncio.run(both())

    with ThreadPoolExecutor(8) as pool:
        for n, (found, error) in enumerate(pool.map(main, range(50))):
            assert found == n and isinstance(error, ZeroDivisionError)


def test_a_call_that_was_cancelled_before_it_began_is_left_out() -> None:
    threads, go, made = BoundedThreads(1), threading.Event(), []

    async def main() -> None:
        first = asyncio.create_task(threads.run(lambda: go.wait(10)))
        others = [asyncio.create_task(threads.run(lambda n=n: made.append(n))) for n in range(5)]
        await asyncio.sleep(0)
        for call in others[:3]:
            call.cancel()
        await asyncio.wait(others[:3])
        go.set()
        await asyncio.gather(first, *others[3:])

    asyncio.run(main())
    assert made == [3, 4]


def test_calls_that_have_not_begun_can_be_failed_and_wait_no_longer_than_they_may() -> None:
    threads, begun, go, made = BoundedThreads(1), threading.Event(), threading.Event(), []

    def hold() -> bool:
        begun.set()
        return go.wait(10)

    async def main() -> None:
        first = asyncio.create_task(threads.run(hold, lambda: 9.0))
        assert await asyncio.to_thread(begun.wait, 10)
        with pytest.raises(NotBegun):
            await threads.run(lambda: made.append("waited"), lambda: 0.0)
        others = [asyncio.create_task(threads.run(lambda: made.append("failed"), lambda: 9.0)) for _ in range(3)]
        await asyncio.sleep(0)
        threads.fail_waiting(ValueError("down"))
        errors = await asyncio.gather(*others, return_exceptions=True)
        assert [str(error) for error in errors] == ["down"] * 3 and len(set(map(id, errors))) == 3
        go.set()
        assert await first and await threads.run(lambda: 7) == 7

    asyncio.run(main())
    assert made == []


def test_a_call_that_is_cancelled_while_it_waits_is_left_out() -> None:
    threads, go, made = BoundedThreads(1), threading.Event(), []

    async def main() -> None:
        first = asyncio.create_task(threads.run(lambda: go.wait(10)))
        other = asyncio.create_task(threads.run(lambda: made.append(1), lambda: 9.0))
        await asyncio.sleep(0)
        other.cancel()
        await asyncio.wait([other])
        go.set()
        await first
        await threads.run(lambda: None)

    asyncio.run(main())
    assert made == []


def test_where_no_thread_can_start_the_call_fails_unless_another_thread_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, go = BoundedThreads(2), threading.Event()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await threads.run(lambda: 1)
        first = asyncio.create_task(threads.run(lambda: go.wait(10)))
        await asyncio.sleep(0)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            second = asyncio.create_task(threads.run(lambda: 2))
            await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(first, second) == [True, 2]

    asyncio.run(main())
