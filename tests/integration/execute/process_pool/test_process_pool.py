"""Handlers in child processes: their outcomes, their stops, their deaths, and nobody left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgsched import App, TaskError
from pgsched.app.base import load
from pgsched.core.model import Claim, Outcome, Result
from pgsched.execute.process_pool import child_process
from pgsched.execute.process_pool.child_process import PoolChild
from pgsched.execute.process_pool.pool import Pool
from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import SLOT, cancel_when, claim, execute, holds
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

app = load("tests.support.apps.processes:app")


def made(size: int = 2) -> PythonExecutor:
    return PythonExecutor(app.tasks, size, app)


def job(task: str, kill_after_s: float = 5.0, **args: Any) -> Claim:
    return claim("task", task, args, kill_after_s=kill_after_s)


def run(task: str, **args: Any) -> Outcome:
    return execute(made(), job(task, **args))


def play(scene: Callable[[PythonExecutor], Coroutine[Any, Any, None]], size: int = 1) -> None:
    """A scene with one executor, which is closed at its end."""

    async def main() -> None:
        executor = made(size)
        try:
            await scene(executor)
        finally:
            await executor.close()

    asyncio.run(main())


def is_running(pid: int) -> bool:
    """Has it a thread left? Its first one becomes a zombie while others still end."""
    try:
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        return threads > 1 or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def group_of(pid: int) -> list[int]:
    """The live processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == pid and is_running(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def stop(task: str, on: Path, kill_after_s: float = 5.0, times: int = 1) -> float:
    """Cancel a handler once it runs, see that no process of it is left; the seconds that stopping it took."""
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


# ---- what registration refuses


def test_the_place_of_a_task_is_settled_at_registration() -> None:
    shop = App()

    def plain() -> None: ...
    async def on_loop() -> None: ...

    assert shop.task(name="a")(plain).place.run_in == "thread"
    assert shop.task(name="b")(on_loop).place.run_in == "loop"
    assert shop.task(name="c", run_in="thread")(plain).place.run_in == "thread"
    assert shop.task(name="d", run_in="loop")(on_loop).place.run_in == "loop"
    assert shop.task(name="e", run_in="process", memory_mb=512)(plain).place.memory_mb == 512
    assert shop.task(name="f", run_in="process")(on_loop).place.run_in == "process"


@pytest.mark.parametrize(
    ("is_async", "options", "reason"),
    [
        (False, {"run_in": "loop"}, 'run_in="loop" needs an async function'),
        (True, {"run_in": "thread"}, 'run_in="thread" needs a plain function'),
        (False, {"run_in": "fiber"}, "run_in: 'fiber' is not one of loop, thread, process"),
        (False, {"memory_mb": 5}, "memory_mb: only a process can be limited"),
        (False, {"run_in": "process", "memory_mb": 0}, "memory_mb: expected a whole number"),
        (False, {"run_in": "process", "memory_mb": True}, "memory_mb: expected a whole number"),
        (False, {"run_in": "process", "memory_mb": 1.5}, "memory_mb: expected a whole number"),
    ],
)
def test_a_place_that_cannot_be_is_refused_at_registration(is_async: bool, options: Any, reason: str) -> None:
    def plain() -> None: ...
    async def on_loop() -> None: ...

    with pytest.raises(TaskError) as refused:
        App().task(name="it", **options)(on_loop if is_async else plain)
    assert str(refused.value).startswith(f"task it: {reason}")


# ---- outcomes


def test_a_handler_in_a_process_gets_its_arguments_and_gives_its_result() -> None:
    assert run("pid").value != os.getpid()
    value = {"a": [1, 2.5, None, True, "é☃"], "b": {"c": []}}
    assert run("echo", value=value).value == value


def test_a_handler_in_a_process_may_ask_for_its_run() -> None:
    given = job("described", word="hi")
    assert execute(made(), given).value == [7, 3, SLOT.isoformat(), 1, str(given.token), False, "hi"]


def test_arguments_and_results_of_a_megabyte_travel() -> None:
    assert len(run("echo", value="x" * 1_000_000).value) == 1_000_000


def test_arguments_that_do_not_fit_are_a_failure_that_is_not_retried() -> None:
    outcome = run("echo", value=1, valeu=2)
    assert (outcome.result, outcome.retry) == (Result.FAILED, False) and "valeu" in (outcome.error or "")


@pytest.mark.parametrize(
    ("which", "error"),
    [
        ("plain", "ValueError: wrong number"),
        ("unprintable", "Unprintable: (its text raises RuntimeError)"),
        ("exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt"),
        ("cancelled", "CancelledError: mine"),
        ("surrogate", "ValueError: nul\ufffd and ?"),
    ],
)
@pytest.mark.parametrize("task", ["raises", "raises_on_loop"])
def test_whatever_a_handler_raises_in_a_process_becomes_a_failure(task: str, which: str, error: str) -> None:
    outcome = run(task, which=which)
    assert (outcome.result, outcome.error, outcome.retry) == (Result.FAILED, error, True)
    assert outcome.traceback is not None and f"in {task}" in outcome.traceback
    assert "pgsched/execute" not in outcome.traceback


def test_retry_and_discard_and_endless_errors_mean_the_same_as_in_a_thread() -> None:
    later, never, endless = (run("raises", which=which) for which in ("retry", "discard", "endless"))
    assert (later.retry, later.retry_in, later.error) == (True, timedelta(seconds=90), "Retry: busy")
    assert (never.retry, never.error) == (False, "Discard: no such customer")
    assert len(endless.error or "") <= 1000 and len(endless.traceback or "") < 20_000


@pytest.mark.parametrize("which", ["object", "nan", "nul", "huge"])
def test_a_result_from_a_process_that_cannot_be_kept_fails_for_good(which: str) -> None:
    outcome = run("returns", which=which)
    assert (outcome.result, outcome.retry) == (Result.FAILED, False)
    assert (outcome.error or "").startswith("the result (")


def test_a_flood_of_output_does_not_disturb_the_outcome(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("flood").value == "done"
    assert len(capfd.readouterr().out) > 20 << 20


def test_what_a_handler_prints_is_out_before_its_outcome(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    async def scene(executor: PythonExecutor) -> None:
        await executor.execute(job("prints", text="no newline"))
        assert capfd.readouterr().out == "no newline"

    play(scene)


def test_a_handler_that_reads_its_input_finds_none() -> None:
    assert run("reads").value == ""


# ---- children are used again


def test_many_attempts_use_no_more_children_than_run_at_once() -> None:
    async def scene(executor: PythonExecutor) -> None:
        outcomes = await asyncio.gather(*(executor.execute(job("pid")) for _ in range(200)))
        assert {outcome.result for outcome in outcomes} == {Result.SUCCEEDED}
        assert 1 <= len({outcome.value for outcome in outcomes}) <= 4

    play(scene, size=4)


def test_one_attempt_after_the_other_needs_one_child_with_one_loop() -> None:
    async def scene(executor: PythonExecutor) -> None:
        seen = [(await executor.execute(job("on_loop"))).value for _ in range(20)]
        assert all(one == seen[0] for one in seen)

    play(scene, size=4)


def test_what_an_async_handler_leaves_on_the_loop_ends_with_it(tmp_path: Path) -> None:
    async def scene(executor: PythonExecutor) -> None:
        await executor.execute(job("leaves_a_task", on=str(tmp_path / "it")))
        assert (tmp_path / "it.clean").exists()

    play(scene)


def test_what_an_async_handler_leaves_for_ever_holds_up_neither_its_result_nor_the_next_attempt() -> None:
    async def scene(executor: PythonExecutor) -> None:
        async with asyncio.timeout(30):
            first, second = [await executor.execute(job(task)) for task in ("leaves_for_ever", "pid")]
        assert (first.result, second.result) == (Result.SUCCEEDED, Result.SUCCEEDED)
        assert first.value != second.value and not is_running(first.value)

    play(scene)


def test_a_task_of_a_handler_that_exits_ends_no_attempt_but_who_awaits_it() -> None:
    async def scene(executor: PythonExecutor) -> None:
        told, forgotten = [await executor.execute(job("exits_in_a_task", awaited=one)) for one in (True, False)]
        assert (told.result, told.error) == (Result.FAILED, "SystemExit: 3")
        assert forgotten.result is Result.SUCCEEDED
        assert (await executor.execute(job("on_loop"))).value[0] == forgotten.value

    play(scene)


def test_children_that_are_idle_for_long_are_ended() -> None:
    async def main() -> None:
        pool = Pool(2, app, idle_s=0.05)
        pid = (await pool.execute(job("pid"), None)).value
        await holds(lambda: not is_running(pid))
        assert (await pool.execute(job("pid"), None)).value != pid
        await pool.close()

    asyncio.run(main())


def test_closing_the_executor_ends_idle_and_busy_children(tmp_path: Path) -> None:
    async def main() -> None:
        executor, on = made(3), tmp_path / "on"
        idle = [one.value for one in await asyncio.gather(*(executor.execute(job("pid")) for _ in range(2)))]
        busy = asyncio.ensure_future(executor.execute(job("sleeps", on=str(on))))
        await holds(on.exists)
        await executor.close()
        assert (await busy).result is Result.CRASHED
        assert not any(is_running(pid) for pid in [*idle, int(on.read_text())])

    asyncio.run(main())


# ---- stops


@pytest.mark.parametrize("task", ["sleeps", "looks", "sleeps_on_loop"])
def test_a_handler_in_a_process_may_clean_up_when_it_is_stopped(task: str, tmp_path: Path) -> None:
    assert stop(task, tmp_path / "on", kill_after_s=60) < 30
    assert (tmp_path / "on.clean").exists()


@pytest.mark.parametrize("task", ["busy", "deaf", "holds_the_interpreter", "with_children"])
def test_a_handler_that_does_not_stop_is_killed_after_kill_after(task: str, tmp_path: Path) -> None:
    assert stop(task, tmp_path / "on", kill_after_s=0.3) < 30


def test_a_second_cancellation_does_not_wait_for_kill_after(tmp_path: Path) -> None:
    assert stop("deaf", tmp_path / "on", kill_after_s=3600, times=2) < 30


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


def test_a_stop_while_the_child_starts_leaves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_child_killed_while_idle_costs_no_attempt() -> None:
    async def scene(executor: PythonExecutor) -> None:
        for _ in range(5):
            pid = (await executor.execute(job("pid"))).value
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: not is_running(pid), what="its end")
            assert (await executor.execute(job("echo", value=1))).result is Result.SUCCEEDED

    play(scene)


@pytest.mark.parametrize("task", ["closes_all", "scribbles"])
def test_a_handler_that_breaks_the_channel_is_a_crash_and_not_a_hang(task: str) -> None:
    async def scene(executor: PythonExecutor) -> None:
        assert (await executor.execute(job(task))).result is Result.CRASHED
        assert (await executor.execute(job("echo", value=1))).value == 1

    play(scene)


def test_a_process_that_the_handler_forked_gives_no_second_outcome() -> None:
    async def scene(executor: PythonExecutor) -> None:
        pid = (await executor.execute(job("pid"))).value
        assert (await executor.execute(job("forks"))).value == "one of two"
        assert (await executor.execute(job("pid"))).value == pid

    play(scene)


def test_what_a_dead_child_had_started_ends_with_it(tmp_path: Path) -> None:
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
from pgsched.client.application import load
from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import claim
app = load("tests.support.apps.processes:app")
asyncio.run(PythonExecutor(app.tasks, 1, app).execute(claim("task", sys.argv[1], {"on": sys.argv[2]})))
"""


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


def test_a_machine_that_starts_no_process_fails_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process.sys, "executable", "/no/such/python")
    outcome = run("pid")
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert outcome.error == "cannot start a child process: no such file or directory"


# ---- memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
@pytest.mark.parametrize("task", ["hungry", "hungry_on_loop"])
def test_a_handler_that_takes_too_much_memory_fails_and_its_child_is_replaced(task: str) -> None:
    async def scene(executor: PythonExecutor) -> None:
        pid = (await executor.execute(job("pid"))).value
        assert (await executor.execute(job(task, mb=32))).value == 32
        assert (await executor.execute(job("pid"))).value == pid
        outcome = await executor.execute(job(task, mb=200))
        assert (outcome.result, outcome.error) == (Result.FAILED, "MemoryError (memory_mb=64)")
        assert outcome.traceback is not None and f"in {task}" in outcome.traceback
        assert (await executor.execute(job("pid"))).value != pid

    play(scene)


def test_a_limit_holds_for_its_own_task_only() -> None:
    async def scene(executor: PythonExecutor) -> None:
        await executor.execute(job("hungry", mb=1))
        pid = (await executor.execute(job("pid"))).value
        assert (await executor.execute(job("unlimited", mb=200))).value == 200
        assert (await executor.execute(job("pid"))).value == pid

    play(scene)
