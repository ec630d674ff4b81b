"""Batched handlers: attempts are gathered for one call, and each is settled by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pgsched import App, Item, Retry, Run, Snooze, TaskError
from pgsched.core.model import Result
from tests.support.attempts.batches import Bench, run


def test_a_batch_may_hold_more_attempts_than_the_worker_has_places() -> None:
    app, calls = App("test"), []

    @app.task(name="many", batch=5, batch_wait=0.05)
    async def many(items: list[Item]) -> list[int]:
        calls.append(sorted(item["n"] for item in items))
        return [item["n"] * 10 for item in items]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        bench.take(3, 4, 5, 6)
        await bench.all_settled(6)
        assert calls == [[1, 2, 3, 4, 5], [6]]
        assert bench.results() == {n: (Result.SUCCEEDED, n * 10) for n in range(1, 7)}
        assert bench.runner.room() == 2

    run(test)


@pytest.mark.parametrize("whole", [True, False])
def test_an_on_error_hook_is_called_for_each_item_that_failed(whole: bool) -> None:
    app, heard = App("test"), []

    @app.on_error
    def note(run: Run, error: BaseException) -> None:
        heard.append((run.id, type(error)))

    @app.task(name="many", batch=5, batch_wait=0.05)
    def many(items: list[Item]) -> list[Any]:
        next(item for item in items if item["n"] == 1).fail(KeyError("k"))
        next(item for item in items if item["n"] == 2).done()
        if whole:
            raise OSError("all others")
        return [Snooze(5) if item["n"] == 3 else ValueError("v") for item in items]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, 3, 4, 5)
        await bench.all_settled(5)
        others = {3: OSError, 4: OSError, 5: OSError} if whole else {4: ValueError, 5: ValueError}
        assert dict(heard) == {1: KeyError, **others}
        assert len(heard) == len(others) + 1

    run(test)


def test_each_item_is_settled_by_itself_and_at_once() -> None:
    app = App("test")
    go = asyncio.Event()

    @app.task(name="many", batch=4)
    async def many(items: list[Item]) -> list[Any]:
        by_number = {item["n"]: item for item in items}
        by_number[1].done("first")
        by_number[2].fail(Retry(60, "later"))
        await go.wait()
        return [ValueError("odd") if item["n"] == 3 else "rest" for item in items]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, 3, 4)
        await bench.all_settled(2)
        go.set()
        await bench.all_settled(4)
        assert bench.settled[1].value == "first"
        assert bench.settled[2].retry_in == timedelta(seconds=60)
        assert bench.settled[3].error == "ValueError: odd"
        assert bench.settled[4].value == "rest"

    run(test)


def test_the_result_of_an_item_stays_if_the_handler_reuses_its_dict() -> None:
    app = App("test")

    @app.task(name="many", batch=3)
    async def many(items: list[Item]) -> None:
        result: dict[str, Any] = {}
        for item in items:
            result["n"] = item["n"]
            item.done(result)
        result["n"] = object()

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2, 3)
        await bench.all_settled(3)
        assert bench.results() == {n: (Result.SUCCEEDED, {"n": n}) for n in (1, 2, 3)}

    run(test)


def test_an_exception_fails_the_items_without_an_outcome() -> None:
    app = App("test")

    @app.task(name="many", batch=2)
    def many(items: list[Item]) -> None:
        items[0].done()
        raise ValueError("no")

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        await bench.all_settled(2)
        assert [outcome.error for outcome in bench.settled.values()] == [None, "ValueError: no"]

    run(test)


def test_a_return_value_of_the_wrong_length_fails_all_items() -> None:
    app = App("test")

    @app.task(name="many", batch=2)
    def many(items: list[Item]) -> Any:
        return [1]

    async def test() -> None:
        bench = Bench(app)
        bench.take(1, 2)
        await bench.all_settled(2)
        assert {outcome.error for outcome in bench.settled.values()} == {
            "batch: a handler returns None or a list of 2 results, not 1 of them"
        }

    run(test)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "task x: batch: expected a whole number from 1 to 10000, got 0"),
        ({"batch": True}, "task x: batch: expected a whole number from 1 to 10000, got True"),
        ({"batch": 2, "batch_wait": -1}, "task x: batch_wait: expected seconds from 0 to 3600, got -1"),
        ({"batch_wait": 1}, "task x: batch_wait: says how long a batch is gathered: add batch="),
        ({"batch": 2, "run_in": "process"}, 'task x: run_in="process": is for one run at a time, not for a batch'),
        ({"batch": 2, "capture": True}, "task x: capture: is for one run at a time, not for a batch"),
    ],
)
def test_invalid_options_of_batches_are_refused(options: dict[str, Any], message: str) -> None:
    def x(items: list[Item]) -> None: ...

    with pytest.raises(TaskError) as raised:
        App("test").task(name="x", **options)(x)
    assert str(raised.value) == message


def test_a_handler_that_does_not_take_a_list_is_refused() -> None:
    def x() -> None: ...

    with pytest.raises(TaskError, match="its handler is called with one argument, the list of items"):
        App("test").task(name="x", batch=2)(x)


def test_one_run_alone_is_called_as_a_batch_of_one() -> None:
    app = App("test")

    @app.task(name="many", batch=2)
    def many(items: list[Item]) -> list[Any]:
        if items[0]["n"] == 2:
            items[0].fail(ValueError("two"))
        return [ValueError("three") if item["n"] == 3 else item["n"] for item in items]

    @app.task(name="later", batch=2)
    async def later(items: list[Item]) -> None:
        items[0].done("done")

    assert many.prepare({"n": 1}, None)() == 1
    for n, message in ((2, "two"), (3, "three")):
        with pytest.raises(ValueError, match=message):
            many.prepare({"n": n}, None)()
    assert asyncio.run(later.prepare({}, None)()) == "done"
