"""Calls of batched handlers take places of the worker, and share them with other work."""

from __future__ import annotations

import asyncio

import pytest

from pgsched import App, Item
from pgsched.worker.attempts import capacity
from tests.support.attempts.batches import Bench, run


def test_each_call_takes_one_place_and_other_tasks_still_run() -> None:
    app, go = App("test"), asyncio.Event()
    running = 0
    most = 0

    @app.task(name="many", batch=2, batch_wait=0.01)
    async def many(items: list[Item]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    @app.task(name="one")
    async def one(n: int) -> int:
        return n

    async def test() -> None:
        bench = Bench(app, concurrency=2)
        bench.take(1, 2, 3, 4)
        await bench.until(lambda: running == 2)
        assert bench.runner.room() == 0
        bench.take(5, 6)
        bench.take(7, task="one")
        go.set()
        await bench.all_settled(7)
        assert most == 2
        assert bench.settled[7].value == 7

    run(test)


def test_a_call_gets_a_place_however_much_other_work_there_is() -> None:
    app, called = App("test"), asyncio.Event()
    made = 0

    @app.task(name="many", batch=2)
    async def many(items: list[Item]) -> None:
        called.set()

    @app.task(name="one")
    async def one(n: int) -> None:
        nonlocal made
        made += 1
        await asyncio.sleep(0)

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        bench.take(*range(3, 2000), task="one")
        async with asyncio.timeout(10):
            await called.wait()
        assert made < 100
        await bench.all_settled(1999)
        assert bench.runner.room() >= 2

    run(test)


def test_other_work_runs_between_calls() -> None:
    app, calls, before = App("test"), 0, list[int]()

    @app.task(name="many", batch=1)
    async def many(items: list[Item]) -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.001)

    @app.task(name="one")
    async def one(n: int) -> None:
        before.append(calls)

    async def test() -> None:
        bench = Bench(app, concurrency=1)
        for n in range(100, 150):
            bench.take(n)
            bench.take(n + 100, task="one")
        await bench.all_settled(100)
        assert before[0] <= 1
        assert before[25] <= 30

    run(test)


def test_attempts_whose_call_waits_for_a_place_reduce_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PARKED_S", 60.0)
    app, go = App("test"), asyncio.Event()

    @app.task(name="many", batch=3, batch_wait=0.05)
    async def many(items: list[Item]) -> None:
        return None

    @app.task(name="one")
    async def one(n: int) -> None:
        if n < 0:
            await go.wait()

    async def test() -> None:
        bench = Bench(app)
        bench.take(0, task="one")
        await bench.all_settled(1)
        bench.runner.capacity.pace.prefetch = 10
        bench.take(-1, task="one")
        bench.take(1, 2)
        await bench.until(lambda: len(bench.runner) == 3)
        assert bench.runner.room() == 11, "those that still gather take none"
        bench.take(-2, task="one")
        await bench.until(lambda: bench.runner.room() == 8)
        bench.take(*range(3, 12))
        go.set()
        await bench.all_settled(14)
        assert bench.runner.room() >= 2

    run(test)


def test_a_worker_that_stops_still_runs_the_gathered_attempts() -> None:
    app = App("test")

    @app.task(name="many", batch=10, batch_wait=0.05)
    def many(items: list[Item]) -> None:
        return None

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        await bench.until(lambda: len(bench.runner) == 2)
        bench.runner.stop()
        await bench.runner.idle(lambda: False)
        assert len(bench.settled) == 2

    run(test)
