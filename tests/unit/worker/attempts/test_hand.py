"""Plain functions, many in one hand: each attempt as if it were alone, and none behind one that takes long."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from pgsched import App, Run, log
from pgsched.core.model import Claim, Outcome
from pgsched.execute.python.executor import PythonExecutor
from pgsched.telemetry.metrics import Meter
from pgsched.worker.attempts import thread_batches
from pgsched.worker.attempts.attempt import Ended
from pgsched.worker.attempts.runner import not_bare
from pgsched.worker.metrics import MeteredSlots, WorkerMeter
from tests.support.executing import holds
from tests.support.stage import Stage, play

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="clean")


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a hand is not over before it is done."""
    monkeypatch.setattr(thread_batches, "HAND_S", 60.0)
    monkeypatch.setattr(thread_batches, "ALL_S", 6000.0)


@pytest.fixture
def large(endless: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that there is to do goes into one hand, from the first on; its time is not over before it is done."""
    monkeypatch.setattr(thread_batches.Hands, "size", lambda *_: thread_batches.MOST)


@pytest.fixture
def slow_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether a hand takes long."""
    monkeypatch.setattr(thread_batches, "LATE_S", 60.0)


def python(stage: Stage) -> PythonExecutor:
    found = stage.slots.executors["python"]
    assert isinstance(found, PythonExecutor)
    return found


def on_begin(stage: Stage, note: Callable[[thread_batches.Hand], object]) -> None:
    """Have each hand noted that is begun from now on."""
    begin = stage.slots._hands.begin

    def begun(handler: Any, claims: Any) -> thread_batches.Hand:
        note(found := begin(handler, claims))
        return found

    stage.slots._hands.begin = begun  # type: ignore[method-assign]


def hands_of(stage: Stage) -> list[int]:
    """How many claims each hand gets from now on."""
    made: list[int] = []
    on_begin(stage, lambda one: made.append(len(one.claims)))
    return made


def delay(stage: Stage, wait: Callable[[], object]) -> None:
    """Each thread waits for this before it begins."""
    start = python(stage).start

    def late(work: Callable[[], None]) -> asyncio.Future[None]:
        def waits() -> None:
            wait()
            work()

        return start(waits)

    python(stage).start = late  # type: ignore[method-assign]


def give_all(stage: Stage, *names: str, **more: Any) -> None:
    """Claims of these tasks arrive, and come to their end."""

    async def scene(stage: Stage) -> None:
        stage.give(*names, **more)
        await stage.all_told(len(names))
        await holds(stage.slots.is_idle)

    play(stage, scene)


def quick() -> None:
    pass


# ---- what each attempt comes to


def returns(i: int = 5) -> int:
    return i


def returns_what_cannot_be_kept() -> object:
    return object()


def fails() -> None:
    raise ValueError("no")


def exits() -> None:
    raise SystemExit(3)


def is_interrupted() -> None:
    raise KeyboardInterrupt


def says_it_was_cancelled() -> None:
    raise asyncio.CancelledError


def stops_iterating() -> None:
    raise StopIteration


def is_missing() -> None:
    raise IndexError("as an empty deque does")


def takes_the_run(run: Run) -> list[Any]:
    return [run.attempt, run.task, run.cancelled.is_set(), run.own.seconds_left()]


def says_and_returns(run: Run) -> int:
    run.log("said", attempt=run.attempt)
    return 7


def says_and_fails(run: Run) -> None:
    run.log("said")
    raise ValueError("no")


def ends_it_by_itself(run: Run) -> str:
    """As `run.transaction()` does."""
    run.own.settling(True)
    return "not kept"


def ends_it_by_itself_and_fails(run: Run) -> None:
    run.own.settling(True)
    raise ValueError("no")


ENDS = [takes_the_run, says_and_returns, says_and_fails, ends_it_by_itself, ends_it_by_itself_and_fails,
        returns, returns_what_cannot_be_kept, quick, fails, exits, is_interrupted, says_it_was_cancelled,
        stops_iterating, is_missing]  # fmt: skip


def come_to(handler: Any, args: dict[str, Any] | None = None, *, in_hands: bool) -> list[Outcome]:
    """What three attempts come to, in one hand or each by itself; and that nothing is left of them."""
    stage = Stage({"t": handler})
    python(stage).attach(stage.slots.control_of, "")
    given = hands_of(stage)
    if not in_hands:
        stage.slots.plain = not_bare

    async def scene(stage: Stage) -> None:
        stage.give(*"ttt", args=args)
        await stage.all_told(3)
        await holds(stage.slots.is_idle)
        assert (len(stage.slots), list(stage.slots.running()), stage.slots._hands.ahead) == (0, [], 0)
        assert not stage.slots._handed

    play(stage, scene)
    assert given == ([3] if in_hands else [])
    return [outcome for _, outcome in stage.told]


@pytest.mark.parametrize("handler", ENDS, ids=lambda handler: handler.__name__)
def test_an_attempt_comes_to_the_same_as_by_itself(handler: Any, large: None) -> None:
    alone, together = come_to(handler, in_hands=False), come_to(handler, in_hands=True)
    assert together == alone
    assert len(set(map(repr, together))) == 1


@pytest.mark.parametrize("args", [{"i": 1}, {}], ids=str)
def test_arguments_that_fit_need_no_other_way(args: dict[str, Any], large: None) -> None:
    assert [outcome.value for outcome in come_to(returns, args, in_hands=True)] == [args.get("i", 5)] * 3


@pytest.mark.parametrize("args", [{"j": 1}, {"i": 1, "j": 1}], ids=str)
def test_arguments_that_do_not_fit_are_refused_as_before(args: dict[str, Any], large: None) -> None:
    stage = Stage({"t": returns})
    given = hands_of(stage)

    give_all(stage, "t", args=args)
    (_, outcome) = stage.told[0]
    assert (str(outcome.result), outcome.retry, given) == ("failed", True, [])


def collects(*args: Any, **kwargs: Any) -> None: ...


async def on_the_loop() -> None: ...


@pytest.mark.parametrize("handler", [collects, on_the_loop], ids=lambda handler: handler.__name__)
def test_other_functions_go_other_ways(handler: Any) -> None:
    stage = Stage({"t": handler})
    given = hands_of(stage)

    give_all(stage, *"ttt")
    assert (stage.results(), given) == ([("t", "succeeded")] * 3, [])


@pytest.mark.parametrize("option", [{"capture": True}, {"run_in": "process"}, {"batch": 10}], ids=str)
def test_tasks_with_other_options_go_other_ways(option: dict[str, Any]) -> None:
    function: Callable[..., Any] = (lambda calls: None) if "batch" in option else quick
    plain, other = App(), App()
    assert plain.task(name="t")(quick).threaded is not None
    assert other.task(name="t", **option)(function).threaded is None


def test_each_attempt_has_a_context_of_its_own(large: None) -> None:
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


def test_an_argument_that_is_missing_is_refused_as_before() -> None:
    stage = Stage({"t": needs})
    given = hands_of(stage)

    give_all(stage, "t")
    assert (stage.told[0][1].retry, given) == (True, [])


def test_with_middleware_each_goes_its_own_way() -> None:
    stage = Stage({"t": quick})
    python(stage)._hooks.per_run = True
    assert python(stage).plain(Claim(1, uuid4(), 1, 1, "default", 5, "python", "t", {})) is None


# ---- how large a hand is


def test_few_attempts_say_nothing_of_how_many_there_is_time_for(endless: None) -> None:
    stage = Stage({"t": quick})
    stage.slots._hands._sizes["t"] = 64
    before = time.monotonic()

    give_all(stage, *"ttt")
    assert stage.slots._hands.size("t") == 64
    assert stage.slots._moved_at >= before


def test_hands_grow_while_their_time_is_not_over(endless: None) -> None:
    stage = Stage({"t": quick})
    given = hands_of(stage)

    give_all(stage, *["t"] * 1000)
    assert given[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert max(given) == thread_batches.MOST
    assert sum(given) == 1000


def test_what_takes_its_time_is_alone() -> None:
    stage = Stage({"t": lambda: time.sleep(2 * thread_batches.HAND_S)})
    given = hands_of(stage)

    give_all(stage, *["t"] * 20)
    assert set(given) == {1}


def test_a_hand_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_batches.Hands, "size", lambda *_: 100)
    stage = Stage({"t": lambda: time.sleep(thread_batches.HAND_S / 4)})
    given = hands_of(stage)

    async def scene(stage: Stage) -> None:
        stage.give(*["t"] * 40)
        await stage.all_told(40)
        assert stage.results() == [("t", "succeeded")] * 40

    play(stage, scene)
    assert len(given) >= 10, "an attempt that is out of its time would look at no lease"


def test_free_slots_get_their_share(large: None) -> None:
    """What waits for a disk or another server is done side by side."""
    stage = Stage({"t": quick}, concurrency=4)
    given = hands_of(stage)

    give_all(stage, *["t"] * 40)
    assert given[:2] == [10, 10]
    assert sum(given) == 40


def test_a_hand_is_of_one_task(large: None) -> None:
    stage = Stage({"a": quick, "b": quick})
    given = hands_of(stage)

    give_all(stage, *"aabba")
    assert given == [2, 2, 1]
    assert [name for name, _ in stage.told] == list("aabba")


def test_a_worker_that_may_run_so_many_starts_no_more(large: None) -> None:
    stage = Stage({"t": quick})
    stage.slots._left = 2
    stage.slots._on_last = stage.slots.stop
    given = hands_of(stage)

    async def scene(stage: Stage) -> None:
        stage.give(*"tttt")
        await stage.all_told(2)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")] * 2
    assert max(given, default=1) == 1


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


def test_what_waits_behind_a_long_one_goes_to_another_slot(large: None) -> None:
    long = Long()
    stage = long.stage(concurrency=2)
    stage.slots._busy = 1  # so that all are in one hand

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        stage.give("t", args={"i": 4})
        stage.slots._busy -= 1
        await stage.all_told(4)
        assert long.seen == [0, 1, 2, 3, 4]
        assert len(stage.slots) == 1
        long.go.set()
        await stage.all_told(5)

    play(stage, scene)
    assert [outcome.value for _, outcome in stage.told] == [1, 2, 3, 4, 0]


def test_it_is_handed_back_where_no_slot_is_free(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgsched.worker.attempts.runner.PARKED_S", 0.05)
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        await asyncio.sleep(0.1)
        stage.slots.unpark()
        assert stage.results() == [("t", "released")] * 3
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)


@pytest.mark.usefixtures("large", "slow_look")
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


@pytest.mark.usefixtures("large")
def test_a_time_limit_is_for_each_and_not_for_all() -> None:
    stage = Stage({"t": lambda: time.sleep(0.03)})

    give_all(stage, *"tttttt", timeout=timedelta(seconds=0.1))
    assert stage.results() == [("t", "succeeded")] * 6


@pytest.mark.usefixtures("large", "slow_look")
@pytest.mark.parametrize(("why", "result"), [(Ended.CANCEL, "cancelled"), (Ended.DEADLINE, "interrupted")], ids=str)
def test_the_one_that_is_being_made_is_ended_and_the_others_are_not(why: Ended, result: str) -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.slots.end([claims[0].key], why)
        await stage.all_told(4)
        long.go.set()

    play(stage, scene)
    assert [(str(outcome.result), outcome.value) for _, outcome in stage.told] == [
        (result, None), *[("succeeded", i) for i in (1, 2, 3)]
    ]  # fmt: skip


@pytest.mark.usefixtures("large", "slow_look")
def test_a_cancelled_claim_that_was_not_begun_is_let_go_of_and_what_is_being_made_goes_on() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.slots.cancel(claims[2].id)
        assert stage.results() == [("t", "cancelled")]
        await asyncio.sleep(0.05)
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)
    assert long.seen == [0, 1, 3]
    assert stage.results()[1:] == [("t", "succeeded")] * 3


@pytest.mark.usefixtures("large", "slow_look")
def test_a_lost_claim_is_not_settled() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.slots.beaten([claims[0].key, claims[3].key], frozenset())
        await stage.all_told(2)
        long.go.set()
        await holds(lambda: python(stage).abandoned == 0)

    play(stage, scene)
    assert [outcome.value for _, outcome in stage.told] == [1, 2]
    assert stage.slots.leases.count == 2, "those that were settled are let go of when that is written"


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


@pytest.mark.usefixtures("large", "slow_look")
@pytest.mark.parametrize(("why", "result"), [(Ended.CANCEL, "cancelled"), (Ended.LOST, None)], ids=str)
def test_a_handler_hears_through_its_run_that_it_is_to_stop(why: Ended, result: str | None) -> None:
    long = Long()

    def work(run: Run, i: int = -1) -> str:
        return heeds(run, long, i)

    stage = Stage({"t": work})

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage, grace=timedelta(seconds=10))
        stage.slots.end([claims[0].key], why)
        await holds(long.go.is_set)
        await stage.all_told(4 if result else 3)
        await holds(stage.slots.is_idle)
        assert python(stage).abandoned == 0

    play(stage, scene)
    found = [(str(outcome.result), outcome.log_tail) for _, outcome in stage.told]
    ended = [(result, "waits\n")] if result else []
    assert found == [*ended, *[("succeeded", None)] * 3]


@pytest.mark.usefixtures("large", "slow_look")
def test_a_handler_that_asks_for_more_time_gets_it() -> None:
    long = Long()

    def work(run: Run, i: int = -1) -> None:
        run.extend(10)
        long(i)

    stage = Stage({"t": work})

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage, timeout=timedelta(seconds=0.05))
        await asyncio.sleep(0.15)
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")] * 4


@pytest.mark.usefixtures("large", "slow_look")
def test_what_its_handler_has_settled_is_no_longer_ended() -> None:
    """Its claim is gone by then, which a heartbeat may notice while the handler goes on."""
    long = Long()

    def work(run: Run, i: int = -1) -> None:
        run.own.settling(True)
        long(i)

    stage = Stage({"t": work})

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.slots.beaten([claim.key], frozenset())
        await asyncio.sleep(0.05)
        assert python(stage).abandoned == 0
        long.go.set()
        await stage.all_told(1)

    play(stage, scene)
    assert stage.results() == [("t", "succeeded")]


@pytest.mark.usefixtures("large", "slow_look")
def test_a_loss_overrides_a_time_limit() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        stage.slots.end([claim.key], Ended.TIMEOUT)
        stage.slots.end([claim.key], Ended.LOST)
        await holds(stage.slots.is_idle)
        long.go.set()

    play(stage, scene)
    assert stage.told == []


@pytest.mark.usefixtures("large", "slow_look")
def test_a_worker_that_stops_begins_nothing_more_of_a_hand() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        stage.slots.stop()
        assert stage.results() == [("t", "released")] * 3
        waits = asyncio.ensure_future(stage.slots.idle(lambda: False))
        await asyncio.sleep(0.02)
        assert not waits.done()
        long.go.set()
        await waits

    play(stage, scene)
    assert long.seen == [0]
    assert stage.results()[3] == ("t", "succeeded")


def test_a_worker_that_stops_does_not_wait_for_a_hand_with_nothing_in_it(large: None, slow_look: None) -> None:
    stage = Stage({"t": quick})
    go = threading.Event()

    def waits() -> None:
        assert go.wait(10)

    delay(stage, waits)

    async def scene(stage: Stage) -> None:
        stage.give(*"tt")
        await holds(lambda: len(stage.slots) == 1)
        stage.slots.stop()
        waits = asyncio.ensure_future(stage.slots.idle(lambda: False))
        await asyncio.sleep(0.02)
        go.set()
        await waits

    play(stage, scene)
    assert stage.results() == [("t", "released")] * 2


@pytest.mark.usefixtures("large", "slow_look")
def test_a_claim_that_is_given_again_is_attempted_once() -> None:
    long = Long()
    stage = long.stage(concurrency=2)
    stage.slots._busy = 1

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.slots._busy -= 1
        stage.slots.take([claims[2]], time.monotonic())
        await asyncio.sleep(0.05)
        long.go.set()
        await stage.all_told(4)
        await holds(stage.slots.is_idle)

    play(stage, scene)
    assert (long.seen, len(stage.told)) == ([0, 1, 2, 3], 4)


@pytest.mark.usefixtures("large", "slow_look")
def test_one_that_waits_no_longer_ends_what_is_being_made() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage, 1)
        stage.slots.stop()
        stage.slots.end_all(Ended.SHUTDOWN)
        await stage.slots.idle(lambda: False)
        long.go.set()

    play(stage, scene)
    assert stage.results() == [("t", "interrupted")]


@pytest.mark.usefixtures("large", "slow_look")
def test_it_is_to_be_seen_what_is_being_made() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        assert [one.claim for one in stage.slots.running()] == [claims[0]]
        assert len(stage.slots) == 1
        assert stage.slots.room() == 0
        stage.slots.pace.prefetch, stage.slots._moved_at = 10, time.monotonic()
        assert stage.slots.room() == 7
        found = stage.slots.attempt_of(claims[0].key)
        assert found is not None
        assert found.claim is claims[0]
        assert stage.slots.attempt_of(claims[1].key) is None
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)


@pytest.mark.usefixtures("large", "slow_look")
@pytest.mark.parametrize(("why", "left"), [(Ended.LOST, 3), (Ended.CANCEL, 4)], ids=str)
def test_a_claim_that_is_lost_just_as_its_attempt_ends_is_not_settled(why: Ended, left: int) -> None:
    """What was done in spite of a cancellation is done."""
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        stage.slots.end([claims[0].key], why)
        assert len(stage.slots) == 1
        long.go.set()
        time.sleep(0.1)  # noqa: ASYNC251 - the slot hears of the end when it is over
        await stage.all_told(left)
        await holds(stage.slots.is_idle)

    play(stage, scene)
    assert sorted(outcome.value for _, outcome in stage.told) == [0, 1, 2, 3][4 - left :]


@pytest.mark.usefixtures("large", "slow_look")
def test_the_first_reason_counts() -> None:
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        (claim,) = await long.has_begun(stage, 1)
        (dealt,) = stage.slots._hands._hands
        stage.slots.end([claim.key], Ended.CANCEL)
        stage.slots.end([claim.key], Ended.DEADLINE)
        dealt.leave()
        await stage.all_told(1)
        long.go.set()

    play(stage, scene)
    assert stage.results() == [("t", "cancelled")]


@pytest.mark.usefixtures("large", "slow_look")
def test_what_was_taken_out_and_dealt_again_can_be_ended() -> None:
    """The hand that it was in first knows no more of it."""
    first, second = Long(), Long()

    def both(i: int = -1) -> None:
        (first if i == 0 else second)(0)

    stage = Stage({"t": both}, concurrency=2)
    stage.slots._busy = 1

    async def scene(stage: Stage) -> None:
        claims = await first.has_begun(stage, 2)
        stage.slots._busy -= 1
        stage.slots._hands.take_out()
        await holds(second.begun.is_set)
        first.go.set()
        await stage.all_told(1)
        stage.slots.end([claims[1].key], Ended.CANCEL)
        await stage.all_told(2)
        second.go.set()

    play(stage, scene)
    assert stage.results() == [("t", "succeeded"), ("t", "cancelled")]


def test_a_slot_whose_task_is_cancelled_by_what_has_ended_is_replaced(large: None, slow_look: None) -> None:
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
        await holds(stage.slots.is_idle)

    play(stage, scene)
    assert sorted(str(outcome.result) for _, outcome in stage.told) == ["failed", *["succeeded"] * 4]
    assert stage.slots._busy == 0


def test_an_attempt_that_ended_before_is_told_of_then(large: None, slow_look: None) -> None:
    """Though the task of its slot was cancelled, and another one of its hand goes on."""
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        stage.give("t", args={"i": 5})
        stage.give("t", args={"i": 0})
        await holds(long.begun.is_set)
        (task,) = stage.slots._tasks
        task.cancel()
        await stage.all_told(2)
        long.go.set()
        await holds(stage.slots.is_idle)

    play(stage, scene)
    assert [(str(outcome.result), outcome.value) for _, outcome in stage.told] == [("succeeded", 5), ("failed", None)]


# ---- what is counted of them


@pytest.mark.usefixtures("large", "slow_look")
def test_what_is_in_hands_is_counted_as_what_it_is() -> None:
    long = Long()
    stage = long.stage()
    counted = WorkerMeter(Meter())
    plain = stage.slots
    stage.slots = slots = MeteredSlots(
        counted, plain.executors, 1, plain.leases, plain._settle, plain._on_room, plain._on_bug
    )

    def sample(name: str) -> Any:
        return next(value for found, _, value in slots.samples() if found == name)

    async def scene(stage: Stage) -> None:
        claims = await long.has_begun(stage)
        assert sample("pgsched_worker_prefetched") == 3
        assert sample("pgsched_worker_unsettled") == 0
        slots.end([claims[0].key], Ended.LOST)
        await stage.all_told(3)
        long.go.set()

    play(stage, scene)
    assert [claim.id for claim, _, _ in counted.ended] == [1, 2, 3, 4]
    lost = [value for found, labels, value in counted.meter.snapshot() if found == "pgsched_leases_lost_total"]
    assert lost == [1]


# ---- leases


def test_no_attempt_begins_at_a_claim_whose_deadline_has_passed(large: None, slow_look: None) -> None:
    """A process that was frozen may have lost what it holds."""
    long = Long()
    stage = long.stage()

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        stage.slots.leases.soonest = 0.0
        stage.slots.leases.past = lambda claim, now: True  # type: ignore[method-assign]
        long.go.set()
        await stage.all_told(4)
        assert long.seen == [0]

    play(stage, scene)
    assert stage.results() == [("t", "succeeded"), *[("t", "released")] * 3]


# ---- what it leaves behind


def test_what_is_said_at_the_end_of_an_attempt_is_said_of_its_own_run(large: None) -> None:
    stage = Stage({"t": fails})
    said: list[Any] = []
    stage.slots._settle = lambda claims, outcome: said.append((claims[0].id, log.ATTEMPT.get().id))

    async def scene(stage: Stage) -> None:
        stage.give(*"ttt")
        await holds(lambda: len(said) == 3)

    play(stage, scene)
    assert said == [(1, 1), (2, 2), (3, 3)]


def test_the_pace_is_that_of_what_has_ended(large: None) -> None:
    """The time in which one that goes on was waited for is no time of the others."""
    stage = Stage({"t": lambda i: time.sleep(0.1 if i == 3 else 0)})
    took: list[tuple[float, int]] = []
    stage.slots.pace.took = lambda seconds, now, count=1: took.append((seconds, count))  # type: ignore[method-assign]

    async def scene(stage: Stage) -> None:
        for i in range(4):
            stage.give("t", args={"i": i})
        await stage.all_told(4)

    play(stage, scene)
    assert [count for _, count in took] == [3, 1]
    assert took[0][0] < thread_batches.LATE_S / 3
    assert took[1][0] >= 0.1


def test_a_thread_that_waits_keeps_nothing_of_what_it_did(large: None) -> None:
    stage = Stage({"t": returns})
    kept: list[weakref.ref[Any]] = []
    on_begin(stage, lambda one: kept.append(weakref.ref(one)))

    async def scene(stage: Stage) -> None:
        stage.give(*"ttt")
        await stage.all_told(3)

        def gone() -> bool:
            gc.collect()
            return all(one() is None for one in kept)

        await holds(gone)

    play(stage, scene)
    assert kept


def test_all_hands_together_have_a_few_milliseconds(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop waits behind each of them for the interpreter."""
    monkeypatch.setattr(thread_batches, "HAND_S", 0.001)
    monkeypatch.setattr(thread_batches, "ALL_S", 0.004)
    long = Long()
    stage = Stage({"t": lambda i=0: long(0)}, concurrency=8)
    seconds: list[float] = []
    on_begin(stage, lambda one: seconds.append(one.seconds))

    async def scene(stage: Stage) -> None:
        stage.give(*"tttttttt")
        await holds(lambda: len(seconds) == 8)
        long.go.set()
        await stage.all_told(8)

    play(stage, scene)
    assert seconds[:4] == [0.001] * 4
    assert seconds[7] == pytest.approx(thread_batches.ALL_S / 8)


def test_a_hand_that_takes_long_makes_the_next_one_small() -> None:
    long = Long()
    stage = long.stage(concurrency=2)
    stage.slots._hands._sizes["t"] = 64
    stage.slots._busy = 1
    given = hands_of(stage)

    async def scene(stage: Stage) -> None:
        await long.has_begun(stage)
        stage.slots._busy -= 1
        await stage.all_told(3)
        long.go.set()
        await stage.all_told(4)

    play(stage, scene)
    assert given[0] > 1
    assert given[1] == 1


# ---- threads


def test_a_thread_that_has_to_wait_for_its_time_finds_something_to_do(
    large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look finds a hand that was not begun, and takes out of it what others could do."""
    monkeypatch.setattr(thread_batches, "LATE_S", 0.005)
    stage = Stage({"t": quick})
    delay(stage, lambda: time.sleep(0.05))

    give_all(stage, *"ttt", timeout=timedelta(seconds=0.02))
    assert stage.results() == [("t", "succeeded")] * 3


def test_what_is_taken_out_just_as_the_thread_comes_to_it_is_not_its_any_more(
    large: None, slow_look: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage({"t": returns})
    once = iter([True])
    begin = thread_batches.Hand._next

    def taken(self: thread_batches.Hand, claim: Claim, now: float) -> Any:
        found = begin(self, claim, now)
        if next(once, False):
            over = threading.Event()

            def take() -> None:
                stage.slots._hands.take_out()
                over.set()

            self._task.get_loop().call_soon_threadsafe(take)
            assert over.wait(10)
        return found

    monkeypatch.setattr(thread_batches.Hand, "_next", taken)

    give_all(stage, *"ttt")
    assert [outcome.value for _, outcome in stage.told] == [5, 5, 5]


def test_where_no_thread_is_to_be_had_it_is_tried_again(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({"t": quick})

    def none(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(python(stage)._threads, "submit", none)

    give_all(stage, *"ttt")
    assert [(str(outcome.result), outcome.retry) for _, outcome in stage.told] == [("failed", True)] * 3


def test_a_thread_that_cannot_even_begin_leaves_it_to_the_executor(
    large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage({"t": returns})

    def none(*_: Any) -> Any:
        raise MemoryError("none left")

    monkeypatch.setattr(thread_batches.Hand, "_next", none)

    give_all(stage, *"ttt")
    assert [outcome.value for _, outcome in stage.told] == [5, 5, 5]


def test_a_thread_that_fails_costs_the_attempt_that_it_was_at(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({"t": returns})
    once = iter([True])

    def attempt(self: thread_batches.Hand, claim: Any) -> Outcome:
        if next(once, False):
            raise MemoryError("none left")
        return made(self, claim)

    made = thread_batches.Hand._attempt
    monkeypatch.setattr(thread_batches.Hand, "_attempt", attempt)

    give_all(stage, *"ttt")
    (_, first), *others = stage.told
    assert str(first.result) == "crashed"
    assert "MemoryError" in (first.error or "")
    assert [outcome.value for _, outcome in others] == [5, 5]
