"""Attempts at plain functions, which run in threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from pgsched import Run, log
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker.attempts.attempt import Ended
from tests.support.executing import holds
from tests.support.stage import Stage, play

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="clean")


def python(stage: Stage) -> PythonExecutor:
    found = stage.runner.executors["task"]
    assert isinstance(found, PythonExecutor)
    return found


def give_all(stage: Stage, *names: str, **more: Any) -> None:
    """Claims of these tasks arrive, and come to their end."""

    async def scene(stage: Stage) -> None:
        stage.give(*names, **more)
        await stage.all_told(len(names))
        await holds(stage.runner.is_idle)

    play(stage, scene)


def quick() -> None:
    pass


def returns(i: int = 5) -> int:
    return i


def fails() -> None:
    raise ValueError("no")


# ---- what each attempt comes to


@pytest.mark.parametrize("args", [{"j": 1}, {"i": 1, "j": 1}], ids=str)
def test_arguments_that_do_not_fit_are_refused(args: dict[str, Any]) -> None:
    stage = Stage({"t": returns})

    give_all(stage, "t", args=args)
    (_, outcome) = stage.told[0]
    assert (str(outcome.result), outcome.retry) == ("failed", False), "there is no other release of the task"


def test_each_attempt_has_a_context_of_its_own() -> None:
    seen: list[Any] = []

    def looks() -> None:
        seen.append((VARIABLE.get(), log.ATTEMPT.get().id))
        VARIABLE.set("dirty")

    stage = Stage({"t": looks})

    async def scene(stage: Stage) -> None:
        claims = stage.give(*"tttt")
        await stage.all_told(4)
        assert seen == [("clean", claim.id) for claim in claims]

    play(stage, scene)


def needs(i: int) -> int:
    return i


def test_a_missing_argument_is_refused() -> None:
    stage = Stage({"t": needs})

    give_all(stage, "t")
    assert stage.told[0][1].retry is False


def test_a_worker_that_may_run_so_many_starts_no_more() -> None:
    stage = Stage({"t": quick})
    stage.runner.buffer.left = 2
    stage.runner.buffer.on_last = stage.runner.stop

    async def scene(stage: Stage) -> None:
        stage.give(*"tttt")
        await stage.all_told(2)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")] * 2


# ---- what takes long


class Long:
    """A function of which the call with `i = 0` lasts until `go`."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.seen: list[int] = []

    def __call__(self, i: int = -1) -> int:
        self.seen.append(i)
        if i == 0:
            self.begun.set()
            assert self.go.wait(10)
        return i

    def stage(self, concurrency: int = 1) -> Stage:
        def work(i: int = -1) -> int:
            return self(i)

        return Stage({"t": work}, concurrency)

    async def has_begun(self, stage: Stage, count: int = 4, grace: timedelta | None = None, **more: Any) -> list[Any]:
        """So many claims, of which the first lasts."""
        stage.grace = grace or timedelta(0)
        claims = stage.give("t", args={"i": 0}, **more)
        claims += [stage.give("t", args={"i": i + 1}, **more)[0] for i in range(count - 1)]
        await holds(self.begun.is_set)
        return claims


def test_a_time_limit_ends_the_one_that_is_being_made() -> None:
    long = Long()
    stage = long.stage()
    limit = timedelta(seconds=0.05)

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage, timeout=limit)
        await stage.all_told(4)
        assert python(stage).abandoned == 1
        long.go.set()
        await holds(lambda: python(stage).abandoned == 0)
        assert len(stage.told) == 4, "what a thread comes to that was left behind counts no more"

    play(stage, scene)
    (_, first), *others = stage.told
    assert (str(first.result), first.error) == ("timed_out", "timed out after 0.05 s")
    assert [outcome.value for _, outcome in others] == [1, 2, 3]


def test_a_time_limit_is_for_each_and_not_for_all() -> None:
    stage = Stage({"t": lambda: time.sleep(0.03)})

    give_all(stage, *"tttttt", timeout=timedelta(seconds=0.1))
    assert stage.results() == [("t", "succeeded")] * 6


@pytest.mark.parametrize(("why", "result"), [(Ended.CANCEL, "cancelled"), (Ended.DEADLINE, "interrupted")], ids=str)
def test_the_one_that_is_being_made_is_ended_and_the_others_are_not(why: Ended, result: str) -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.end([claims[0].key], why)
        await stage.all_told(4)
        long.go.set()

    play(stage, scene)
    assert [(str(outcome.result), outcome.value) for _, outcome in stage.told] == [
        (result, None), *[("succeeded", i) for i in (1, 2, 3)]
    ]  # fmt: skip


def test_a_cancelled_claim_that_was_not_begun_is_let_go_of_and_what_is_being_made_goes_on() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.beaten([], frozenset({claims[2].key}))
        assert stage.results() == [("t", "cancelled")]
        await asyncio.sleep(0.05)
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)
    assert long.seen == [0, 1, 3]
    assert stage.results()[1:] == [("t", "succeeded")] * 3


def test_a_lost_claim_is_not_settled() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.beaten([claims[0].key, claims[3].key], frozenset())
        await stage.all_told(2)
        long.go.set()
        await holds(lambda: python(stage).abandoned == 0)

    play(stage, scene)
    assert [outcome.value for _, outcome in stage.told] == [1, 2]
    assert stage.runner.leases.count == 2, "those that were settled are let go of when that is written"


def heeds(run: Run, long: Long, i: int) -> str:
    """Lasts until it is told to stop; the others do nothing."""
    if i == 0:
        run.log("waits")
        long.begun.set()
        assert run.cancelled.wait(10)
        assert run.own.control is not None
        assert run.own.control.stopping
        long.go.set()
    return "done"


@pytest.mark.parametrize(("why", "result"), [(Ended.CANCEL, "cancelled"), (Ended.LOST, None)], ids=str)
def test_a_handler_hears_through_its_run_that_it_is_to_stop(why: Ended, result: str | None) -> None:
    long = Long()

    def work(run: Run, i: int = -1) -> str:
        return heeds(run, long, i)

    stage = Stage({"t": work})
    python(stage).attach(stage.runner.attempt_of, "")

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage, grace=timedelta(seconds=10))
        stage.runner.end([claims[0].key], why)
        await holds(long.go.is_set)
        await stage.all_told(4 if result else 3)
        await holds(stage.runner.is_idle)
        assert python(stage).abandoned == 0

    play(stage, scene)
    found = [(str(outcome.result), outcome.log_tail) for _, outcome in stage.told]
    ended = [(result, "waits\n")] if result else []
    assert found == [*ended, *[("succeeded", None)] * 3]


def test_a_handler_that_asks_for_more_time_gets_it() -> None:
    long = Long()

    def work(run: Run, i: int = -1) -> None:
        run.extend(10)
        long(i)

    stage = Stage({"t": work})
    python(stage).attach(stage.runner.attempt_of, "")

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage, timeout=timedelta(seconds=0.05))
        await asyncio.sleep(0.15)
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")] * 4


def test_what_its_handler_has_settled_is_no_longer_ended() -> None:
    """Its claim is gone by then, which a heartbeat may notice while the handler goes on."""
    long = Long()

    def work(run: Run, i: int = -1) -> None:
        run.own.settling(True)
        long(i)

    stage = Stage({"t": work})
    python(stage).attach(stage.runner.attempt_of, "")

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.runner.beaten([claim.key], frozenset())
        await asyncio.sleep(0.05)
        assert python(stage).abandoned == 0
        long.go.set()
        await stage.all_told(1)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")]


def test_a_loss_overrides_a_time_limit() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.runner.end([claim.key], Ended.TIMEOUT)
        stage.runner.end([claim.key], Ended.LOST)
        await holds(stage.runner.is_idle)
        long.go.set()

    play(stage, scene)
    assert stage.told == []


def test_a_worker_that_stops_begins_nothing_more() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        stage.runner.stop()
        stage.runner.hand_back()
        assert stage.results() == [("t", "released")] * 3
        waits = asyncio.ensure_future(stage.runner.idle(lambda: False))
        await asyncio.sleep(0.02)
        assert not waits.done()
        long.go.set()
        await waits

    play(stage, scene)
    assert long.seen == [0]
    assert stage.results()[3] == ("t", "succeeded")


def test_a_claim_that_is_given_again_is_attempted_once() -> None:
    long = Long()
    stage = long.stage(concurrency=2)
    stage.runner.capacity.busy = 1

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.capacity.busy -= 1
        stage.runner.take([claims[0]], time.monotonic())
        await asyncio.sleep(0.05)
        long.go.set()
        await stage.all_told(4)
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert (long.seen, len(stage.told)) == ([0, 1, 2, 3], 4)


def test_one_that_waits_no_longer_ends_what_is_being_made() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage, 1)
        stage.runner.stop()
        stage.runner.end_all(Ended.SHUTDOWN)
        await stage.runner.idle(lambda: False)
        long.go.set()

    play(stage, scene)
    assert stage.results() == [("t", "interrupted")]


def test_it_is_to_be_seen_what_is_being_made() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        assert [one.claim for one in stage.runner.running()] == [claims[0]]
        assert len(stage.runner) == 1
        assert stage.runner.room() == 0
        stage.runner.capacity.pace.prefetch, stage.runner.capacity.moved_at = 10, time.monotonic()
        assert stage.runner.room() == 7
        found = stage.runner.attempt_of(claims[0].key)
        assert found is not None
        assert found.claim is claims[0]
        assert stage.runner.attempt_of(claims[1].key) is None
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)


def test_a_claim_that_is_lost_just_as_its_attempt_ends_is_not_settled() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.runner.end([claims[0].key], Ended.LOST)
        assert len(stage.runner) == 1
        long.go.set()
        time.sleep(0.1)  # noqa: ASYNC251 - the place hears of the end when it is over
        await stage.all_told(3)
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert sorted(outcome.value for _, outcome in stage.told) == [1, 2, 3]


def test_the_first_reason_counts() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.runner.end([claim.key], Ended.CANCEL)
        stage.runner.end([claim.key], Ended.DEADLINE)
        await stage.all_told(1)
        long.go.set()

    play(stage, scene)
    assert stage.results() == [("t", "cancelled")]


def test_a_place_whose_task_is_cancelled_by_what_has_ended_is_replaced() -> None:
    long = Long()

    def work(i: int = -1) -> int:
        return long(i)

    async def leaves_a_timer() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.05, task.cancel)

    stage = Stage({"a": leaves_a_timer, "t": work})

    async def scene(stage: Stage) -> None:
        stage.give("a")
        await long.has_begun(stage)
        await asyncio.sleep(0.15)
        long.go.set()
        await stage.all_told(5)
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert sorted(str(outcome.result) for _, outcome in stage.told) == ["failed", *["succeeded"] * 4]
    assert stage.runner.capacity.busy == 0


def test_an_attempt_that_ended_before_is_told_of_then() -> None:
    """Though the task of its place was cancelled, and another attempt goes on."""
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        stage.give("t", args={"i": 5})
        stage.give("t", args={"i": 0})
        await holds(long.begun.is_set)
        (task,) = stage.runner.tasks.all
        task.cancel()
        await stage.all_told(2)
        long.go.set()
        await holds(stage.runner.is_idle)

    play(stage, scene)
    assert [(str(outcome.result), outcome.value) for _, outcome in stage.told] == [("succeeded", 5), ("failed", None)]


# ---- leases


def test_no_attempt_begins_at_a_claim_whose_deadline_has_passed() -> None:
    """A process that was frozen may have lost what it holds."""
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        stage.runner.leases.soonest = 0.0
        stage.runner.leases.past = lambda claim, now: True  # type: ignore[method-assign]
        long.go.set()
        await stage.all_told(4)
        assert long.seen == [0]

    play(stage, scene)
    assert stage.results() == [("t", "succeeded"), *[("t", "released")] * 3]


# ---- what it leaves behind


def test_what_is_said_at_the_end_of_an_attempt_is_said_of_its_own_run() -> None:
    stage = Stage({"t": fails})
    said: list[Any] = []
    stage.runner.settle = lambda claims, outcome: said.append((claims[0].id, log.ATTEMPT.get().id))

    async def scene(stage: Stage) -> None:
        stage.give(*"ttt")
        await holds(lambda: len(said) == 3)

    play(stage, scene)
    assert said == [(1, 1), (2, 2), (3, 3)]


# ---- threads


def test_where_no_thread_is_to_be_had_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({"t": quick})

    def none(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(python(stage)._threads, "submit", none)

    give_all(stage, *"ttt")
    assert [(str(outcome.result), outcome.retry) for _, outcome in stage.told] == [("failed", True)] * 3
