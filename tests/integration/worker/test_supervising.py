"""A supervisor tries again when a worker process cannot be started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pgsched.worker.supervision import supervisor as module
from pgsched.worker.supervision.supervisor import Supervisor

pytestmark = pytest.mark.scram

FORK = OSError(11, "Resource temporarily unavailable")
# this program reports that it is ready, as a worker does, and ends when it is asked to
WORKER = """
import os, socket
link = socket.socket(fileno=int(os.environ["PGSCHED_SUPERVISED"].split(",")[2]))
link.send(b"ready ")
link.recv(1)
"""


class Forks:
    """A `Popen` that fails at the calls whose numbers, counted from 1, are in `failing`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: set[int]) -> None:
        self.calls, self.failing, self.real = 0, failing, subprocess.Popen
        monkeypatch.setattr(subprocess, "Popen", self)

    def __call__(self, *args: Any, **options: Any) -> subprocess.Popen[bytes]:
        self.calls += 1
        if self.calls in self.failing:
            raise FORK
        return self.real(*args, **options)


async def becomes(condition: Callable[[], object], what: str) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"{what} did not come")


def play(processes: int, scene: Callable[[Supervisor], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "restart_pause_s", lambda *_: 0.05)

    async def played() -> None:
        one = Supervisor([sys.executable, "-c", WORKER], processes)
        running = asyncio.create_task(one.run())
        await asyncio.sleep(0)
        await scene(one)
        one.stop()
        await asyncio.wait_for(running, 10)

    asyncio.run(played())


def ready(one: Supervisor) -> list[str]:
    """Return the sorted names of the ready workers; a successor's name has its pid until the predecessor is gone."""
    return sorted(member.name for member in one.members() if member.ready)


def pids(one: Supervisor) -> list[int]:
    return [member.pid for member in one.members()]


@pytest.mark.parametrize("failing", [{1}, {2}, {3, 4}], ids=["the first", "another", "twice"])
def test_a_worker_that_could_not_be_forked_is_started_later(failing: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    forks = Forks(monkeypatch, failing)

    async def scene(one: Supervisor) -> None:
        await becomes(lambda: ready(one) == ["1", "2", "3"], "all three workers")
        assert forks.calls == 3 + len(failing)

    play(3, scene, monkeypatch)


def test_a_worker_that_died_has_a_successor_though_the_first_fork_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    Forks(monkeypatch, {3})

    async def scene(one: Supervisor) -> None:
        await becomes(lambda: ready(one) == ["1", "2"], "both workers")
        died = next(member.pid for member in one.members() if member.name == "2")
        os.kill(died, signal.SIGKILL)
        await becomes(lambda: died not in pids(one) and ready(one) == ["1", "2"], "its successor")

    play(2, scene, monkeypatch)


def test_a_worker_stays_while_its_successor_cannot_be_forked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forks = Forks(monkeypatch, {2})

    async def scene(one: Supervisor) -> None:
        await becomes(lambda: ready(one) == ["1"], "the worker")
        before = pids(one)
        one.renew()
        assert (pids(one), forks.calls) == (before, 2)
        one.renew()
        await becomes(lambda: pids(one) != before and ready(one) == ["1"], "its successor")

    play(1, scene, monkeypatch)
