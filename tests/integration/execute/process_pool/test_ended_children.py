"""Child processes that are stopped or die: the outcome of the attempt, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pgsched.core.model import Result
from pgsched.execute.process_pool import child_process
from pgsched.execute.process_pool.child_process import PoolChild
from pgsched.execute.python.executor import PythonExecutor
from tests.support.attempts.process_pool import is_running, job, made, play, run
from tests.support.executing import cancel_when, holds
from tests.support.paths import ROOT
from tests.support.waiting import wait_until


def group_of(pid: int) -> list[int]:
    """Return the live processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == pid and is_running(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def stop(task: str, on: Path, kill_after_s: float = 5.0, times: int = 1) -> float:
    """Cancel a running handler, check that none of its processes is left, and return the seconds of the stop."""
    began = 0.0

    def running() -> bool:
        nonlocal began
        began = time.monotonic()
        return on.exists()

    stopped = cancel_when(made(), job(task, kill_after_s, on=str(on)), running, times)
    assert type(stopped) is asyncio.CancelledError
    took = time.monotonic() - began
    assert group_of(int(on.read_text())) == []
    return took


# ---- stops


@pytest.mark.parametrize("task", ["sleeps", "looks", "sleeps_on_loop"])
def test_a_handler_in_a_process_can_clean_up_when_it_is_stopped(task: str, tmp_path: Path) -> None:
    assert stop(task, tmp_path / "on", kill_after_s=60) < 30
    assert (tmp_path / "on.clean").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["busy", "deaf", "holds_the_interpreter", "with_children"])
def test_a_handler_that_does_not_stop_is_killed_after_kill_after(task: str, tmp_path: Path) -> None:
    assert stop(task, tmp_path / "on", kill_after_s=0.3) < 30


def test_a_second_cancellation_does_not_wait_for_kill_after(tmp_path: Path) -> None:
    assert stop("deaf", tmp_path / "on", kill_after_s=3600, times=2) < 30


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["sleeps", "deaf"])
def test_after_a_stop_the_next_attempt_has_a_new_child(task: str, tmp_path: Path) -> None:
    async def scene(executor: PythonExecutor) -> None:
        on = tmp_path / "on"
        work = asyncio.ensure_future(executor.execute(job(task, 0.3, on=str(on))))
        await holds(on.exists)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        outcome = await executor.execute(job("pid"))
        assert outcome.result is Result.SUCCEEDED and outcome.value != int(on.read_text())
        assert executor.abandoned == 0

    play(scene)


def test_a_stop_while_the_child_starts_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended, start, end = list[PoolChild](), list[PoolChild](), PoolChild.open, PoolChild.end
    monkeypatch.setattr(PoolChild, "open", lambda child: started.append(child) or start(child))
    monkeypatch.setattr(PoolChild, "end", lambda child: ended.append(child) or end(child))

    async def scene(executor: PythonExecutor) -> None:
        work = asyncio.ensure_future(executor.execute(job("pid")))
        await holds(lambda: started)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert ended == started and not is_running(started[0].group)

    play(scene)
    assert ended == started, "not once more at the end, when others may have its number"


@pytest.mark.parametrize("task", ["looks", "sleeps", "sleeps_on_loop"])
def test_a_sigterm_from_outside_does_not_disturb_a_handler(task: str, tmp_path: Path) -> None:
    """A service manager that stops the worker signals every process of the service."""

    async def scene(executor: PythonExecutor) -> None:
        on = tmp_path / "on"
        work = asyncio.ensure_future(executor.execute(job(task, on=str(on))))
        await holds(on.exists)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(int(on.read_text()), number)
        done, _ = await asyncio.wait({work}, timeout=0.3)
        assert not done
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert (tmp_path / "on.clean").exists()

    play(scene)


# ---- deaths


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("task", "args", "how"),
    [
        ("leaves", {"code": 3}, "exit code 3"),
        ("leaves", {"code": 0}, "exit code 0"),
        ("segfault", {}, "killed by SIGSEGV"),
    ],
)
def test_a_child_that_dies_is_a_crash_and_is_replaced(task: str, args: Any, how: str) -> None:
    async def scene(executor: PythonExecutor) -> None:
        outcome = await executor.execute(job(task, **args))
        assert (outcome.result, outcome.retry) == (Result.CRASHED, True)
        assert outcome.error == f"the child process that ran it ended: {how}"
        if task == "segfault":
            assert outcome.traceback is not None and "in segfault" in outcome.traceback
        assert (await executor.execute(job("echo", value=1))).value == 1

    play(scene)


@pytest.mark.long
def test_a_child_killed_from_outside_is_a_crash_and_is_replaced(tmp_path: Path) -> None:
    async def scene(executor: PythonExecutor) -> None:
        on = tmp_path / "on"
        work = asyncio.ensure_future(executor.execute(job("sleeps", on=str(on))))
        await holds(on.exists)
        os.kill(int(on.read_text()), signal.SIGKILL)
        outcome = await work
        assert outcome.error == "the child process that ran it ended: killed by SIGKILL"
        assert (await executor.execute(job("pid"))).value != int(on.read_text())

    play(scene)


@pytest.mark.long
def test_a_child_killed_while_idle_costs_no_attempt() -> None:
    async def scene(executor: PythonExecutor) -> None:
        for _ in range(5):
            pid = (await executor.execute(job("pid"))).value
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: not is_running(pid), what="its end")
            assert (await executor.execute(job("echo", value=1))).result is Result.SUCCEEDED

    play(scene)


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["closes_all", "scribbles"])
def test_a_handler_that_breaks_the_channel_is_a_crash_and_not_a_hang(task: str) -> None:
    async def scene(executor: PythonExecutor) -> None:
        assert (await executor.execute(job(task))).result is Result.CRASHED
        assert (await executor.execute(job("echo", value=1))).value == 1

    play(scene)


@pytest.mark.long
def test_a_process_that_the_handler_forked_gives_no_second_outcome() -> None:
    async def scene(executor: PythonExecutor) -> None:
        pid = (await executor.execute(job("pid"))).value
        assert (await executor.execute(job("forks"))).value == "one of two"
        assert (await executor.execute(job("pid"))).value == pid

    play(scene)


def test_processes_that_a_child_started_end_when_the_child_dies(tmp_path: Path) -> None:
    async def scene(executor: PythonExecutor) -> None:
        on = tmp_path / "on"
        work = asyncio.ensure_future(executor.execute(job("with_children", on=str(on))))
        await holds(on.exists)
        os.kill(int(on.read_text()), signal.SIGKILL)
        assert (await work).result is Result.CRASHED
        assert group_of(int(on.read_text())) == []

    play(scene)


WORKER = """
import asyncio, sys
from pgsched.app.base import import_app
from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import claim
app = import_app("tests.support.apps.processes:app")
asyncio.run(PythonExecutor(app.tasks, 1, app).execute(claim("task", sys.argv[1], {"on": sys.argv[2]})))
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["with_children", "holds_the_interpreter", "deaf"])
def test_no_child_outlives_a_killed_worker(task: str, tmp_path: Path) -> None:
    on = tmp_path / "on"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, task, str(on)], cwd=ROOT)
    try:
        wait_until(on.exists, what="the handler")
        group = int(on.read_text())
        assert len(group_of(group)) == (3 if task == "with_children" else 1)
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: not group_of(group), what="the end of all processes of the run")


def test_an_attempt_fails_if_no_child_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process.sys, "executable", "/no/such/python")
    outcome = run("pid")
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert outcome.error == "cannot start a child process: no such file or directory"
