"""A worker claims ahead as much as its pace and memory allow, and nothing while it holds a suspect."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

from pgsched import App, Item
from pgsched.core.model import Claim, Claims
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker.attempts import capacity
from pgsched.worker.attempts.capacity import MOST_AHEAD_SIZE, Capacity
from pgsched.worker.attempts.runner import AttemptRunner
from pgsched.worker.leases import Leases
from tests.support.executing import holds
from tests.support.stage import Stage, play

FREE = 2


def claims(count: int, size: int = 0, **more: Any) -> Claims:
    """Return `count` claims, whose arguments take `size` bytes together."""
    made = Claims(Claim(n, uuid4(), 1, 3, "default", 5, "task", "t", {}, **more) for n in range(1, count + 1))
    made.size = size
    return made


class Held:
    """The places of a worker, and the leases of its claims."""

    def __init__(self, prefetch: int = 100) -> None:
        self.leases = Leases(30)
        self.capacity = Capacity(FREE, self.leases)
        self.capacity.pace.prefetch = prefetch

    def take(self, made: Claims, *, alone: bool = True) -> Claims:
        self.leases.add(made, time.monotonic())
        self.capacity.took(made, time.monotonic(), alone=alone)
        return made

    def wanted(self, filled: int = 0) -> int:
        return self.capacity.wanted(filled)

    def places(self, filled: int = 0) -> int:
        return self.capacity.places(filled)


def test_while_a_suspect_is_held_nothing_is_claimed_ahead() -> None:
    held = Held()
    assert held.wanted() == FREE + 100
    suspect = held.take(claims(1, suspect=True))
    assert held.wanted() == FREE
    held.leases.drop(suspect)
    assert held.wanted() == FREE + 100


def test_nothing_that_begins_at_once_is_claimed_beside_a_young_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    assert (held.places(), held.places(filled=1), held.places(filled=5)) == (2, 1, 0)
    held.take(claims(1, suspect=True))
    assert held.places() == 0
    monkeypatch.setattr(capacity, "YOUNG_S", 0.0)
    assert held.places() == 2, "it did not kill its worker at once"


def test_the_size_of_arguments_that_are_claimed_ahead_is_bounded() -> None:
    held = Held(prefetch=5000)
    held.take(claims(4, 4 << 20))
    assert held.wanted() == FREE + MOST_AHEAD_SIZE // ((1 << 20) + 1)
    held.take(claims(100, 100), alone=False)
    assert held.wanted() == FREE + 15, "the large ones may be held still"
    held.take(claims(100, 100))
    assert held.wanted() == FREE + 5000


def test_claims_that_wait_reduce_the_places_of_a_worker() -> None:
    async def scene(stage: Stage) -> None:
        runner = stage.runner
        assert runner.places() == 3
        stage.give("wait", "wait")
        await holds(lambda: len(runner) == 2)
        assert runner.places() == 1
        stage.give("wait", "wait")
        assert runner.places() == 0
        go.set()
        await stage.all_told(4)
        assert runner.places() == 3
        runner.stop()
        assert runner.places() == 0

    go = asyncio.Event()
    play(Stage({"wait": go.wait}, concurrency=3), scene)


def test_a_worker_that_may_start_one_more_run_has_one_place() -> None:
    async def scene(stage: Stage) -> None:
        stage.runner.buffer.runs_left = 1
        assert stage.runner.places() == 1

    play(Stage({}, concurrency=3), scene)


def test_an_attempt_of_a_batch_has_begun_once_its_call_has() -> None:
    app, called, go = App("test"), asyncio.Event(), asyncio.Event()

    @app.task(name="many", batch=2, batch_wait=10)
    async def many(items: list[Item]) -> None:
        called.set()
        await go.wait()

    async def scene() -> None:
        executor = PythonExecutor(app.tasks, 2)
        runner = AttemptRunner({"task": executor}, 2, Leases(60), lambda *_: None, lambda: None, print)
        one, other = (claims(1)[0]._replace(id=n, task="many", args={}) for n in (1, 2))
        runner.take([one], time.monotonic())
        await holds(runner.running)
        assert [running.begun for running in runner.running()] == [False]
        runner.take([other], time.monotonic())
        await called.wait()
        assert [running.begun for running in runner.running()] == [True, True]
        go.set()
        await holds(lambda: not runner.running())

    asyncio.run(asyncio.wait_for(scene(), 20))
