"""Recorded runs of tasks that another program has: they are left for it, as a worker of this program leaves them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pgsched import App, InputError, State, TaskError
from pgsched.testing import enqueued, inline, record


@pytest.fixture
def own(app: App) -> Any:
    return app.task(name="shop.own")(lambda n: n)


def test_a_drain_leaves_a_run_of_another_program_s_task_queued(app: App, own: Any) -> None:
    with record(app) as recorder:
        theirs = app.enqueue("billing.invoice", {"order": 7}, queue="bills", tags=["a"])
        mine = app.enqueue("shop.own", {"n": 1})
        assert [run.id for run in recorder.drain()] == [mine]
        assert recorder.drain(scheduled=True) == []
        assert (theirs.state(), mine.result()) == (State.QUEUED, 1)
        assert [(run.task, run.args, run.queue, run.tags) for run in enqueued(app)] == [
            ("billing.invoice", {"order": 7}, "bills", ["a"])
        ]
        assert asyncio.run(recorder.drain_async()) == []


def test_inline_a_run_of_another_program_s_task_is_left_queued(app: App, own: Any) -> None:
    async def main() -> None:
        run = await app.enqueue_async("billing.invoice", [8])
        assert await run.state_async() is State.QUEUED

    with inline(app) as recorder:
        run = app.enqueue("billing.invoice", [7])
        assert run.state() is State.QUEUED
        asyncio.run(main())
        recorder.travel(60)
        after = own.options(after=[run]).enqueue(1)
        assert after.state() is State.WAITING, "what waits for it does not run either"
        run.cancel()
        assert after.state() is State.CANCELLED


def test_a_wait_for_another_program_s_task_says_whose_it_is(app: App, own: Any) -> None:
    with record(app):
        run = app.enqueue("shop.won", [7])
        with pytest.raises(TimeoutError, match=r"it is queued, and this app has no task shop\.won.* mean shop\.own\?"):
            run.result()


@pytest.mark.parametrize("mode", [record, inline], ids=["record", "inline"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_run_whose_arguments_do_not_fit_is_dead(mode: Any, is_async: bool, app: App, own: Any) -> None:
    with mode(app) as recorder:
        app.enqueue("later", {"m": 1})
        app.task(name="later")(lambda n: n)  # its arguments were not checked when it was enqueued
        with pytest.raises(TaskError, match="later"):
            asyncio.run(recorder.drain_async()) if is_async else recorder.drain()
        assert [run.state for run in recorder.runs] == ["dead"]
        assert "TaskError" in (recorder.runs[0].error or "")
        assert recorder.drain() == []


def test_a_key_for_another_program_s_task_is_no_template(app: App) -> None:
    with record(app):
        with pytest.raises(InputError, match=r'unique_key: "user \{n\}" holds \{n\}, but .*unique_by=\("n",\)'):
            app.enqueue("theirs", {"n": 1}, unique_key="user {n}")
        assert app.enqueue("theirs", {"n": 1}, unique_key="user {m}").created
        assert app.enqueue("theirs", {"n": 1}, unique_by=["n"]).created
        assert not app.enqueue("theirs", {"n": 1.0}, unique_by=["n"]).created
