"""Handles of runs: read, wait, cancel, retry and update a run, in both forms, as the program that enqueued it would."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, NotFound, PgschedError, Run, RunFailed, RunGone, RunHandle, RunId, State
from pgsched.app.task import Task
from tests.support.waiting import wait_until
from tests.support.working import at_work


@dataclass
class Bill:
    total: Decimal
    due: datetime


@dataclass
class Shop:
    """An app with tasks that succeed, fail or wait until the test lets them go on."""

    app: App
    pay: Task[[int], Bill]
    fail: Task[[], None]
    wait: Task[[], str]
    go: threading.Event


@pytest.fixture
def shop(dsn: str) -> Iterator[Shop]:
    app, go = App("shop", dsn=dsn), threading.Event()

    @app.task(name="pay")
    def pay(amount: int) -> Bill:
        return Bill(Decimal(amount), datetime(2026, 1, 1, tzinfo=UTC))

    @app.task(name="fail", max_attempts=1)
    def fail() -> None:
        raise ValueError("no money")

    @app.task(name="wait", capture=True)
    def wait(run: Run) -> str:
        print("it begins")
        run.progress(1, 2, "half")
        while not go.wait(0.01) and not run.cancelled.is_set():
            pass
        return "done"

    yield Shop(app, pay, fail, wait, go)
    go.set()
    app.close()


def both(sync: Callable[..., Any], form: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Return the result of a method, which has to be that of its asyncio form."""
    found, other = sync(*args, **more), asyncio.run(form(*args, **more))
    assert found == other
    return found


def test_a_handle_is_the_run_s_id(shop: Shop, db: psycopg.Connection[Any]) -> None:
    run = shop.pay.enqueue(7)
    assert type(run) is RunHandle and isinstance(run, int)
    assert db.execute("SELECT id FROM pgsched.runs").fetchone() == (run,)
    assert json.dumps({"run": run}) == f'{{"run": {int(run)}}}' and run == shop.app.run(int(run))
    assert (run.created, run.how) == (True, "created")
    copied = pickle.loads(pickle.dumps(run))
    assert (type(copied), copied, copied.how) == (RunId, run, "created")
    again = shop.pay.options(unique_key="k").enqueue(1), shop.pay.options(unique_key="k").enqueue(1)
    assert again[0] == again[1] and again[1].how == "existing"


def test_the_state_and_all_details_are_read(shop: Shop) -> None:
    run = shop.pay.options(queue="money", priority=2, tags=["a"]).enqueue(7)
    assert both(run.state, run.state_async) is State.QUEUED
    info = run.info()
    assert (info.id, info.task, info.queue, info.priority, info.args, info.tags) == (
        run, "pay", "money", 2, {"amount": 7}, ["a"],
    )  # fmt: skip
    assert (info.attempt, info.attempts, info.result, info.finished_at) == (0, [], None, None)
    assert asyncio.run(run.info_async()).created_at == info.created_at


def test_a_result_has_the_type_of_the_annotation(shop: Shop, dsn: str) -> None:
    with at_work(dsn, shop.app):
        run = shop.pay.enqueue(7)
        bill = run.result(timeout=20)
    assert bill == Bill(Decimal(7), datetime(2026, 1, 1, tzinfo=UTC))
    assert asyncio.run(run.result_async()) == bill
    assert shop.app.run(run).result(timeout=0) == bill, "by the name of the run's task"
    assert shop.app.wait([run], timeout=0) == {run: State.SUCCEEDED}
    elsewhere = App("elsewhere", dsn=dsn)
    assert elsewhere.run(run).result() == {"total": "7", "due": "2026-01-01T00:00:00Z"}, "the task is not known there"
    elsewhere.close()
    assert shop.app.enqueue("pay", {"amount": 1}).state() is State.QUEUED


def test_an_async_handler_s_result_is_what_it_returns(shop: Shop, dsn: str) -> None:
    @shop.app.task(name="later")
    async def later(n: int) -> int:
        return n + 1

    async def main() -> int:
        run = await later.enqueue_async(1)
        found: int = await run.result_async(timeout=20)
        return found

    with at_work(dsn, shop.app):
        assert asyncio.run(main()) == 2


def test_a_run_that_failed_raises_its_error_and_traceback(shop: Shop, dsn: str) -> None:
    with at_work(dsn, shop.app):
        run = shop.fail.enqueue()
        with pytest.raises(RunFailed, match=f"run {int(run)} is dead: ValueError: no money") as failed:
            run.result(timeout=20)
        assert run.wait() is State.DEAD
    assert (failed.value.run_id, failed.value.state, failed.value.error) == (run, "dead", "ValueError: no money")
    assert 'raise ValueError("no money")' in (failed.value.traceback or "")
    with pytest.raises(RunFailed):
        asyncio.run(run.result_async())


def test_a_cancelled_run_raises_the_reason(shop: Shop) -> None:
    run = shop.pay.enqueue(7)
    assert run.cancel("not needed") is State.CANCELLED
    with pytest.raises(RunFailed, match=r"is cancelled: cancelled by .*: not needed"):
        run.result()
    assert asyncio.run(run.cancel_async()) is State.CANCELLED


def test_a_cancel_after_a_failed_attempt_raises_the_reason_and_not_that_error(shop: Shop, dsn: str) -> None:
    with at_work(dsn, shop.app):
        run = shop.fail.options(max_attempts=2, backoff_base=3600).enqueue()
        wait_until(lambda: run.state() is State.SCHEDULED, 20, "its first failure")
    run.cancel("not needed")
    with pytest.raises(RunFailed, match=r"is cancelled: cancelled by .*: not needed") as failed:
        run.result()
    assert failed.value.traceback is None


def test_a_run_that_was_pruned_or_never_was_is_gone(shop: Shop) -> None:
    run = shop.app.run(4711)
    for call in (run.wait, run.result):
        with pytest.raises(RunGone, match="there is no run 4711"):
            call()
    for other in (run.state, run.cancel, run.retry, run.logs, run.info):
        with pytest.raises(NotFound):
            other()
    with pytest.raises(NotFound):
        run.update(priority=1)


def test_the_time_limit_says_why_the_run_has_not_ended(shop: Shop, db: psycopg.Connection[Any]) -> None:
    run = shop.pay.enqueue(7)
    message = (
        f"run {int(run)} has not ended in time: it is queued, and no live worker offers task pay on queue default;"
        " start a `pgsched worker`"
    )
    for error in (pytest.raises(TimeoutError), pytest.raises(TimeoutError)):
        with error as raised:
            run.wait(timeout=0.1)
        assert str(raised.value) == message
    with pytest.raises(TimeoutError, match="no live worker"):
        asyncio.run(run.result_async(timeout=0.1))


def test_a_running_run_shows_progress_and_output_and_is_stopped(shop: Shop, dsn: str) -> None:
    with at_work(dsn, shop.app):
        run = shop.wait.enqueue()
        wait_until(lambda: run.info().progress, 20, "the handler's progress")
        progress = run.info().progress or {}
        assert (progress["done"], progress["total"], progress["note"]) == (1, 2, "half")
        wait_until(run.logs, 20, "the handler's output")
        assert [(line.stream, line.text, line.attempt) for line in run.logs()] == [("stdout", "it begins\n", 1)]
        assert both(run.logs, run.logs_async, stream="stderr") == []
        with pytest.raises(InputError, match=r"state: run .* is running"):
            run.update(priority=1)
        assert run.cancel("enough") is State.RUNNING
        assert run.wait(timeout=20) is State.CANCELLED


def test_a_run_is_retried(shop: Shop) -> None:
    run = shop.pay.enqueue(7)
    with pytest.raises(InputError, match="only dead, cancelled, missed and skipped runs can be retried"):
        shop.app.run(shop.pay.options(delay=60).enqueue(1)).retry()
    for retry in (run.retry, lambda: asyncio.run(run.retry_async(now=True))):
        run.cancel()
        assert retry() is State.QUEUED


def test_a_time_without_a_zone_is_refused(shop: Shop) -> None:
    run = shop.pay.enqueue(7)
    with pytest.raises(InputError, match="at: expected a datetime with a time zone"):
        run.update(at=datetime(2030, 1, 1))
    with pytest.raises(InputError, match="at: expected a datetime with a time zone"):
        asyncio.run(run.update_async(at=datetime(2030, 1, 1)))


@pytest.mark.parametrize(
    "change",
    [{"at": "2030-01-01T00:00Z"}, {"at": date(2030, 1, 1)}, {"priority": True}, {"priority": 1.5}, {"queue": 3}],
)
def test_a_change_to_a_wrong_value_is_refused_by_name(shop: Shop, change: dict[str, Any]) -> None:
    run = shop.pay.enqueue(7)
    with pytest.raises(InputError, match=f"^{next(iter(change))}: "):
        run.update(**change)
    with pytest.raises(InputError, match="why: expected text, got 5"):
        run.cancel(5)  # type: ignore[arg-type]
    assert run.state() is State.QUEUED


def test_a_run_is_changed_before_it_starts(shop: Shop) -> None:
    run = shop.pay.enqueue(7)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert run.update(at=later, priority=1) is State.SCHEDULED
    assert asyncio.run(run.update_async(queue="other")) is State.SCHEDULED
    info = run.info()
    assert (info.available_at, info.priority, info.queue) == (later, 1, "other")


# ---- many runs


def test_many_runs_are_awaited_together(shop: Shop, dsn: str) -> None:
    with at_work(dsn, shop.app):
        good = [shop.pay.enqueue(n) for n in range(20)]
        bad = shop.fail.enqueue()
        states = shop.app.wait([*good, bad], timeout=20)
    assert states == {**dict.fromkeys(map(int, good), State.SUCCEEDED), int(bad): State.DEAD}
    assert asyncio.run(shop.app.wait_async(good)) == dict.fromkeys(good, State.SUCCEEDED)
    assert shop.app.wait([]) == {}
    with pytest.raises(RunGone, match=r"there is no run 4711: .*; the other runs have ended"):
        shop.app.wait([bad, 4711])


def test_a_wait_for_many_says_how_many_go_on(shop: Shop) -> None:
    runs = [shop.pay.enqueue(n) for n in range(3)]
    runs[0].cancel()
    with pytest.raises(TimeoutError, match="2 of 3 runs have not ended in time"):
        shop.app.wait(runs, timeout=0.1)


def test_a_handler_may_not_wait_for_runs(shop: Shop, dsn: str) -> None:
    other = shop.pay.options(queue="nobody").enqueue(1)

    @shop.app.task(name="impatient", max_attempts=1)
    def impatient() -> None:
        other.result()

    @shop.app.task(name="impatient_async", max_attempts=1)
    async def impatient_async() -> None:
        await shop.app.wait_async([other])

    with at_work(dsn, shop.app, queues=("default",)):
        for task in (impatient, impatient_async):
            with pytest.raises(RunFailed, match="a handler cannot wait for another run: it would keep a place"):
                task.enqueue().result(timeout=20)


def test_runs_are_listed_by_the_filters_of_the_command_line(shop: Shop) -> None:
    first = shop.pay.options(tags=["a"], queue="q").enqueue(1)
    second = shop.fail.enqueue()
    second.cancel("why not")
    runs = shop.app.runs
    assert [run.id for run in runs()] == [second, first]
    for found, filters in (
        ([first], {"task": "pay"}), ([first], {"tag": "a"}), ([first], {"queue": "q"}),
        ([second], {"state": "cancelled"}),
        ([second], {"error": "WHY"}), ([], {"until": "1h"}), ([first], {"before_id": second}),
        ([second, first], {"since": timedelta(hours=1)}), ([second], {"ended_since": datetime(2026, 1, 1, tzinfo=UTC)}),
    ):  # fmt: skip
        assert [run.id for run in both(runs, shop.app.runs_async, **filters) if run] == found, filters
    assert [run.id for run in runs(limit=1)] == [second]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"stat": "dead"}, "stat: no such filter; .*did you mean state?"),
        ({"state": "failed"}, "state: .*did you mean dead?"),
        ({"since": datetime(2026, 1, 1)}, "since: 2026-01-01 00:00:00 has no time zone"),
        ({"since": 7}, "since: expected a datetime, a timedelta or a text, got int"),
        ({"since": "soon"}, "since: .soon. is not a time"),
    ],
)
def test_wrong_filters_are_refused(shop: Shop, filters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shop.app.runs(**filters)


# ---- by name


def test_a_run_is_enqueued_by_name_without_its_handler(dsn: str, db: psycopg.Connection[Any]) -> None:
    app = App("other", dsn=dsn)
    run = app.enqueue("shop.welcome", {"user": 7, "at": datetime(2026, 1, 1, tzinfo=UTC)}, queue="mail", priority=1)
    later = asyncio.run(app.enqueue_async("shop.welcome", [1, "x"], delay=60))
    assert run.info().args == {"user": 7, "at": "2026-01-01T00:00:00Z"}
    assert (later.info().args, later.state(), run.info().queue) == ([1, "x"], State.SCHEDULED, "mail")
    with psycopg.connect(dsn) as mine:
        app.enqueue("shop.welcome", connection=mine)
        mine.rollback()
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (2,)
    app.close()


def test_arguments_of_a_known_task_are_checked_by_name(shop: Shop) -> None:
    assert shop.app.enqueue("pay", [7]).info().args == {"amount": 7}
    with pytest.raises(PgschedError, match="parameter amount: expected"):
        shop.app.enqueue("pay", {"amount": "7"})
    for args, message in (("7", "expected a mapping or a sequence, got str"), ({"a": float("nan")}, "is not JSON")):
        with pytest.raises(InputError, match=f"args: {message}"):
            shop.app.enqueue("elsewhere", args)
    with pytest.raises(InputError, match="prioritaet: no such option"):
        shop.app.enqueue("elsewhere", {}, prioritaet=1)  # type: ignore[call-arg]
