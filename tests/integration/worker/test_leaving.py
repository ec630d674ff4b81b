"""A worker's process ends soon after its work, whatever is left on the event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from pgsched import App
from pgsched.core.model import Outcome
from pgsched.errors import InputError
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker import shutdown
from tests.support.executing import claim

STAYS = """
import asyncio, time
from pgsched.errors import InputError
from pgsched.worker import shutdown

async def swallows():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def blocks():
    try:
        await asyncio.sleep(3600)
    finally:
        time.sleep(3600)

async def waits():
    await asyncio.to_thread(time.sleep, 3600)

async def work():
    tasks = [asyncio.create_task({left}()) for _ in range(2)]
    await asyncio.sleep(0.3)
    {end}

shutdown.run_loop(work, 0.5)
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("end", "code"),
    [("return", 0), ("raise InputError('no such queue')", 2), ("raise ValueError('a bug')", 70)],
)
@pytest.mark.parametrize("left", ["swallows", "blocks", "waits"])
def test_tasks_that_do_not_end_delay_no_exit_and_change_no_exit_code(left: str, end: str, code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STAYS.format(left=left, end=end)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == code
    (line,) = ended.stderr.splitlines()
    assert "ending at once" in line and "handlers=2" in line and f"exit_code={code}" in line
    assert end == "return" or end.split("'")[1] in line


@pytest.mark.parametrize("error", [None, InputError("no")])
def test_a_process_whose_loop_is_closed_in_time_goes_on(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list[object]()
    monkeypatch.setattr(shutdown, "exit_process", lambda *what: left.append(what))

    async def work() -> None:
        if error is not None:
            raise error

    if error is None:
        shutdown.run_loop(work, 0.2)
    else:
        with pytest.raises(type(error)):
            shutdown.run_loop(work, 0.2)
    time.sleep(0.5)
    assert not left and not [one for one in threading.enumerate() if isinstance(one, threading.Timer)]


def test_an_exit_in_a_task_ends_neither_the_worker_nor_other_attempts() -> None:
    app, outcomes = App("exiting"), dict[str, Outcome]()

    @app.task(name="exits")
    async def exits() -> None:
        async def leave() -> None:
            sys.exit(3)

        async with asyncio.TaskGroup() as group:
            group.create_task(leave())

    @app.task(name="beside")
    async def beside() -> str:
        while "exits" not in outcomes:  # noqa: ASYNC110 - until the other one has ended
            await asyncio.sleep(0)
        return "done"

    async def work() -> None:
        executor = PythonExecutor(app.tasks, 2)

        async def attempt(task: str) -> None:
            outcomes[task] = await executor.execute(claim("task", task))

        await asyncio.gather(attempt("beside"), attempt("exits"))
        await executor.close()

    shutdown.run_loop(work)
    assert (outcomes["exits"].error, outcomes["beside"].value) == ("SystemExit: 3", "done")


def test_work_that_exits_ends_the_process_with_its_code() -> None:
    async def work() -> None:
        sys.exit(4)

    with pytest.raises(SystemExit) as ended:
        shutdown.run_loop(work)
    assert ended.value.code == 4
