"""Handlers in child processes: registration, outcomes, the reuse of children, and memory limits."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgsched import App, TaskError
from pgsched.core.model import Result
from pgsched.execute.process_pool.pool import Pool
from pgsched.execute.python.executor import PythonExecutor
from tests.support.attempts.process_pool import app, is_running, job, made, play, run
from tests.support.executing import SLOT, execute, holds

# ---- registration


def test_where_a_task_runs_is_decided_at_registration() -> None:
    shop = App("test")

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
def test_invalid_options_of_a_task_are_refused_at_registration(is_async: bool, options: Any, reason: str) -> None:
    def plain() -> None: ...
    async def on_loop() -> None: ...

    with pytest.raises(TaskError) as refused:
        App("test").task(name="it", **options)(on_loop if is_async else plain)
    assert str(refused.value).startswith(f"task it: {reason}")


# ---- outcomes


def test_a_handler_in_a_process_gets_its_arguments_and_gives_its_result() -> None:
    assert run("pid").value != os.getpid()
    value = {"a": [1, 2.5, None, True, "é☃"], "b": {"c": []}}
    assert run("echo", value=value).value == value


def test_a_handler_in_a_process_can_take_its_run_as_a_parameter() -> None:
    given = job("described", word="hi")
    assert execute(made(), given).value == [7, 3, SLOT.isoformat(), 1, str(given.token), False, "hi"]


@pytest.mark.long
def test_arguments_and_results_of_a_megabyte_are_passed_on() -> None:
    assert len(run("echo", value="x" * 1_000_000).value) == 1_000_000


def test_arguments_that_do_not_fit_are_a_failure_that_is_not_retried() -> None:
    outcome = run("echo", value=1, valeu=2)
    assert (outcome.result, outcome.retry) == (Result.FAILED, False) and "valeu" in (outcome.error or "")


@pytest.mark.few(2)
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


@pytest.mark.long
@pytest.mark.parametrize("which", ["object", "nan", "nul", "huge"])
def test_a_result_from_a_process_that_cannot_be_kept_fails_for_good(which: str) -> None:
    outcome = run("returns", which=which)
    assert (outcome.result, outcome.retry) == (Result.FAILED, False)
    assert (outcome.error or "").startswith("the result (")


@pytest.mark.long
def test_a_flood_of_output_does_not_disturb_the_outcome(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("flood").value == "done"
    assert len(capfd.readouterr().out) > 20 << 20


def test_output_of_a_handler_is_flushed_before_its_outcome(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    async def scene(executor: PythonExecutor) -> None:
        await executor.execute(job("prints", text="no newline"))
        assert capfd.readouterr().out == "no newline"

    play(scene)


def test_the_standard_input_of_a_handler_is_empty() -> None:
    assert run("reads").value == ""


# ---- reuse of children


@pytest.mark.long
def test_the_number_of_children_is_bounded_by_the_concurrency() -> None:
    async def scene(executor: PythonExecutor) -> None:
        outcomes = await asyncio.gather(*(executor.execute(job("pid")) for _ in range(200)))
        assert {outcome.result for outcome in outcomes} == {Result.SUCCEEDED}
        assert 1 <= len({outcome.value for outcome in outcomes}) <= 4

    play(scene, size=4)


def test_attempts_one_after_another_share_one_child_with_one_loop() -> None:
    async def scene(executor: PythonExecutor) -> None:
        seen = [(await executor.execute(job("on_loop"))).value for _ in range(20)]
        assert all(one == seen[0] for one in seen)

    play(scene, size=4)


def test_a_task_left_on_the_loop_ends_with_its_handler(tmp_path: Path) -> None:
    async def scene(executor: PythonExecutor) -> None:
        await executor.execute(job("leaves_a_task", on=str(tmp_path / "it")))
        assert (tmp_path / "it.clean").exists()

    play(scene)


@pytest.mark.long
def test_an_endless_task_delays_neither_the_result_nor_the_next_attempt() -> None:
    async def scene(executor: PythonExecutor) -> None:
        async with asyncio.timeout(30):
            first, second = [await executor.execute(job(task)) for task in ("leaves_for_ever", "pid")]
        assert (first.result, second.result) == (Result.SUCCEEDED, Result.SUCCEEDED)
        assert first.value != second.value and not is_running(first.value)

    play(scene)


@pytest.mark.long
def test_an_exit_in_a_task_fails_only_an_attempt_that_awaits_the_task() -> None:
    async def scene(executor: PythonExecutor) -> None:
        told, forgotten = [await executor.execute(job("exits_in_a_task", awaited=one)) for one in (True, False)]
        assert (told.result, told.error) == (Result.FAILED, "SystemExit: 3")
        assert forgotten.result is Result.SUCCEEDED
        assert (await executor.execute(job("on_loop"))).value[0] == forgotten.value

    play(scene)


@pytest.mark.long
def test_children_that_are_idle_for_long_are_ended() -> None:
    async def main() -> None:
        pool = Pool(2, app, idle_s=0.05)
        pid = (await pool.execute(job("pid"), None)).value
        await holds(lambda: not is_running(pid))
        assert (await pool.execute(job("pid"), None)).value != pid
        await pool.close()

    asyncio.run(main())


@pytest.mark.long
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


# ---- memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
@pytest.mark.parametrize("task", ["hungry", "hungry_on_loop"])
def test_a_handler_over_its_memory_limit_fails_and_its_child_is_replaced(task: str) -> None:
    async def scene(executor: PythonExecutor) -> None:
        pid = (await executor.execute(job("pid"))).value
        assert (await executor.execute(job(task, mb=32))).value == 32
        assert (await executor.execute(job("pid"))).value == pid
        outcome = await executor.execute(job(task, mb=200))
        assert (outcome.result, outcome.error) == (Result.FAILED, "MemoryError (memory_mb=64)")
        assert outcome.traceback is not None and f"in {task}" in outcome.traceback
        assert (await executor.execute(job("pid"))).value != pid

    play(scene)


@pytest.mark.long
def test_a_memory_limit_holds_for_its_own_task_only() -> None:
    async def scene(executor: PythonExecutor) -> None:
        await executor.execute(job("hungry", mb=1))
        pid = (await executor.execute(job("pid"))).value
        assert (await executor.execute(job("unlimited", mb=200))).value == 200
        assert (await executor.execute(job("pid"))).value == pid

    play(scene)
