"""Hooks: middleware around handlers wherever they run, `on_error`, start and shutdown, and hooks that fail."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pgsched import App, PgschedError, Run, TaskError
from pgsched.app.base import import_app
from pgsched.core.model import Outcome, Result
from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import cancel_when, claim, execute

app = import_app("tests.support.apps.hooked:app")
PLACES = ("loop", "thread", "process", "process_async")
HANDLER_IN = {"loop": "MainThread", "thread": "pgsched-handler", "process": "MainThread", "process_async": "MainThread"}


@pytest.fixture(autouse=True)
def notes_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOOKED_NOTES", str(tmp_path / "notes"))
    return tmp_path / "notes"


def made() -> PythonExecutor:
    return PythonExecutor(app.tasks, 1, app, hooks=app.hooks)


def run(place: str, what: str) -> Outcome:
    return execute(made(), claim("task", place, {"what": what}))


def notes(path: Path) -> list[str]:
    """Return the notes about the run, without those of the process's start and shutdown hooks."""
    return [line for line in path.read_text().splitlines() if line not in ("start", "shutdown")]


@pytest.mark.parametrize("place", PLACES)
def test_middleware_wraps_the_handler_in_order(place: str, notes_file: Path) -> None:
    assert run(place, "hi").value == "<hi>"
    plain = [] if "async" in place or place == "loop" else [f"plain in {HANDLER_IN[place]}"]
    handler = f"handler in {HANDLER_IN[place]}"
    assert notes(notes_file) == [f"outer {place} 1", "inner", *plain, handler, "outer ends"]


@pytest.mark.parametrize("task", ["thread_with_loop", "process_with_loop"])
def test_a_plain_handler_below_async_middleware_may_run_a_loop_of_its_own(task: str) -> None:
    async def main() -> None:
        executor = made()
        for _ in range(2):
            outcome = await executor.execute(claim("task", task))
            assert (outcome.error, outcome.value) == (None, "<['from a loop', 'none runs here']>")
        assert (await executor.execute(claim("task", "process_async", {"what": "hi"}))).value == "<hi>"
        await executor.close()

    asyncio.run(main())


@pytest.mark.parametrize("place", PLACES)
def test_middleware_can_turn_a_failure_into_a_success(place: str, notes_file: Path) -> None:
    outcome = run(place, "key")
    assert (outcome.result, outcome.value) == (Result.SUCCEEDED, "rescued")
    assert not any(line.startswith("told") for line in notes(notes_file))


@pytest.mark.few(3)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("what", "said"), [("value", "ValueError: no"), ("exit", "SystemExit: 3")])
def test_every_on_error_hook_is_called_although_one_fails(place: str, what: str, said: str, notes_file: Path) -> None:
    outcome = run(place, what)
    assert (outcome.result, outcome.error, outcome.retry) == (Result.FAILED, said, True)
    assert notes(notes_file)[-2:] == [f"told {place} {said}", "told last"], "the hook between them failed"


@pytest.mark.few(2)
@pytest.mark.parametrize("place", PLACES)
def test_a_snooze_calls_no_on_error_hook(place: str, notes_file: Path) -> None:
    assert run(place, "snooze").result is Result.SNOOZED
    assert not any(line.startswith("told") for line in notes(notes_file))


@pytest.mark.parametrize("place", ["loop", "process"])
def test_a_cancelled_attempt_unwinds_through_its_middleware(place: str, notes_file: Path) -> None:
    began = time.monotonic()
    given = claim("task", place, {"what": "sleeps"}, kill_after_s=60)
    stopped = cancel_when(made(), given, lambda: notes_file.exists() and "handler" in notes_file.read_text())
    assert isinstance(stopped, asyncio.CancelledError)
    assert notes(notes_file)[-1] == "outer ends cancelled", "nobody is told of a failure"
    assert time.monotonic() - began < 50


def test_a_thread_below_middleware_that_does_not_stop_is_abandoned(notes_file: Path) -> None:
    executor = made()
    given = claim("task", "thread", {"what": "sleeps"})
    cancel_when(executor, given, lambda: notes_file.exists() and "handler in" in notes_file.read_text())
    assert executor.abandoned == 1
    assert notes(notes_file)[-1] == "outer ends cancelled"


@pytest.mark.long
def test_a_child_process_runs_start_and_shutdown_hooks(notes_file: Path) -> None:
    run("process", "hi")
    lines = notes_file.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("start", "shutdown")


@pytest.mark.parametrize("result", [Result.TIMED_OUT, Result.CRASHED])
def test_on_error_gets_timeouts_and_crashes_as_exceptions(result: Result, notes_file: Path) -> None:
    async def main() -> None:
        executor = made()
        executor.ended_badly(claim("task", "loop", {}), Outcome(result, error="it was bad"))
        await executor.close()

    asyncio.run(main())
    name = "TimedOut" if result is Result.TIMED_OUT else "Crashed"
    assert notes(notes_file) == [f"told loop {name}: it was bad", "told last"]


# ---- registration, start, shutdown


async def takes_too_little(run: Run) -> None: ...
def generator(run: Run, call_next: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("event", "hook", "reason"),
    [
        ("middleware", takes_too_little, r"takes_too_little must take \(run, call_next\)"),
        ("middleware", generator, "generator is a generator"),
        ("on_error", "print", "expected a function, got str"),
        ("on_error", takes_too_little, r"must take \(run, error\)"),
        ("on_start", takes_too_little, r"must take \(\)"),
    ],
)
def test_a_hook_that_cannot_be_called_is_refused(event: str, hook: Any, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        getattr(App("test"), event)(hook)


def test_the_error_of_a_start_hook_names_the_hook(notes_file: Path) -> None:
    one = App("test")

    @one.on_start
    async def connects() -> None:
        raise OSError("no such host")

    with pytest.raises(PgschedError, match=r"on_start hook .*connects failed: OSError: no such host"):
        asyncio.run(one.hooks.start([]))


def test_every_shutdown_hook_is_called_and_none_delays_the_exit(capfd: pytest.CaptureFixture[str]) -> None:
    one, called = App("test"), []
    one.on_shutdown(lambda: called.append("first registered"))

    @one.on_shutdown
    def hangs() -> None:
        time.sleep(3600)

    @one.on_shutdown
    async def fails() -> None:
        called.append("fails")
        raise OSError("gone")

    began = time.monotonic()
    asyncio.run(one.hooks.shutdown(0.2))
    assert time.monotonic() - began < 30
    assert called == ["fails", "first registered"]


def test_no_run_object_is_built_without_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    one = App("test")
    one.task(name="t")(lambda: 1)
    one.on_start(lambda: None)
    monkeypatch.setattr("pgsched.execute.python.executor.run_of", lambda *_: pytest.fail("a Run was made"))
    assert execute(PythonExecutor(one.tasks, 1, one, hooks=one.hooks), claim("task", "t")).value == 1


FAILS = """
from pgsched import App
app = App("fails")
@app.on_start
def connects():
    raise OSError("no such host")
"""


@pytest.mark.long
def test_a_worker_whose_start_hook_fails_ends_with_its_reason(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "fails_at_start.py").write_text(FAILS)
    ended = subprocess.run(
        [sys.executable, "-m", "pgsched", "worker", "--app", "fails_at_start:app", "--dsn", dsn],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path.cwd())}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "on_start hook connects failed: OSError: no such host" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("is_async", [True, False])
def test_an_exception_of_an_on_error_hook_does_not_replace_the_outcome(
    is_async: bool, raised: BaseException, notes_file: Path
) -> None:
    one, called = App("test"), []

    def hook(run: Run, error: BaseException) -> None:
        raise type(raised)(*raised.args)

    async def as_async(run: Run, error: BaseException) -> None:
        hook(run, error)

    one.on_error(as_async if is_async else hook)
    one.on_error(lambda run, error: called.append(str(error)))

    @one.task(name="t")
    async def fails() -> None:
        raise ValueError("no")

    outcome = execute(PythonExecutor(one.tasks, 1, one, hooks=one.hooks), claim("task", "t"))
    assert (outcome.error, called) == ("ValueError: no", ["no"])
