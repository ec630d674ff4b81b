"""Handlers that block the event loop or the interpreter keep their leases, and are named."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import psycopg
import pytest

from pgsched.services.status import read_status
from pgsched.worker.attempts import runner
from pgsched.worker.watching import stacks, watchdog
from tests.support.apps import contract
from tests.support.db.setting import row_of
from tests.support.serving import add, serve, state
from tests.support.waiting import wait_until


class Said:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append((event, fields))

    def fields(self, event: str) -> dict[str, Any] | None:
        return next((fields for said, fields in self.lines if said == event), None)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    found = Said()
    monkeypatch.setattr(watchdog, "logger", found)
    monkeypatch.setattr(watchdog, "BLOCKED_S", 1.0)
    monkeypatch.setattr(watchdog, "DUMP_S", 2.0)
    return found


@pytest.fixture(autouse=True)
def tables(db: psycopg.Connection) -> None:
    db.execute(contract.TABLES)


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["blocks.loop", "blocks_below.loop"])
def test_a_handler_that_blocks_the_loop_keeps_its_lease_and_is_named_in_status(
    task: str, dsn: str, db: psycopg.Connection, said: Said
) -> None:
    run_id = add(db, task)
    names = f"{task} (run {run_id})"
    problems: list[str] = []

    def meanwhile() -> None:
        by = "SELECT blocked_by FROM pgsched.workers WHERE blocked_at < clock_timestamp() - interval '2 s'"
        wait_until(lambda: db.execute(by).fetchone() == (names,), 20, "the worker to say so")
        problems.extend(read_status(db).problems)
        renewed = "SELECT lease_until - started_at > interval '2.5 s' FROM pgsched.runs"
        wait_until(lambda: db.execute(renewed).fetchone() == (True,), 20, "renewals of the lease")
        db.execute("INSERT INTO public.written VALUES (0, 'go')")

    def over() -> bool:
        clear = "SELECT FROM pgsched.workers WHERE blocked_at IS NULL AND blocked_by IS NULL"
        return state(db, run_id) == "succeeded" and db.execute(clear).rowcount == 1

    serve(dsn, over, meanwhile, lease_s=1.5)
    assert (row_of(db, run_id)["result"], row_of(db, run_id)["attempt"]) == ("let go", 1)
    assert any("blocked for" in line and names in line for line in problems)
    told = said.fields("the event loop is blocked")
    assert told is not None and told["by"] == names
    assert "in wait_for" in told["stack"] and "asyncio/" not in told["stack"].partition("contract.py")[0]
    assert said.fields("the event loop turns again") == {"was_blocked_by": names}


@pytest.mark.long
def test_a_call_that_holds_the_interpreter_is_named_with_its_stack_afterwards(
    dsn: str, db: psycopg.Connection, said: Said
) -> None:
    run_id = add(db, "holds.thread", seconds=4)
    serve(dsn, lambda: state(db, run_id) == "succeeded" and said.lines)
    told = said.fields("no Python code of this process ran")
    assert told is not None
    assert told["by"] in (f"holds.thread (run {run_id})", "holds.thread"), "the run may have ended by then"
    assert "in holds_the_interpreter" in told["stack"]
    assert told["seconds"] > 1 and told["cpu_s"] < told["seconds"]


@pytest.mark.long
def test_a_call_that_held_the_interpreter_is_named_after_its_attempt_ended(
    dsn: str, db: psycopg.Connection, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner.AttemptRunner, "running", lambda self: [])
    run_id = add(db, "holds.thread", seconds=4)
    serve(dsn, lambda: state(db, run_id) == "succeeded" and said.lines)
    told = said.fields("no Python code of this process ran")
    assert told is not None and "holds.thread" in told["by"]
    assert "in holds_the_interpreter" in told["stack"]


@pytest.mark.long
def test_a_call_that_is_over_before_the_dump_is_reported(
    dsn: str, db: psycopg.Connection, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "DUMP_S", 60.0)
    run_id = add(db, "holds.thread", seconds=4)
    serve(dsn, lambda: state(db, run_id) == "succeeded" and said.lines)
    told = said.fields("no Python code of this process ran")
    assert told is not None and told["seconds"] > 1, "who it was is seen mostly, by who gets the interpreter next"
    assert "most recent call first" in told["stack"]


def test_the_stacks_of_other_threads_are_read() -> None:
    go = threading.Event()

    def sleeper() -> None:
        go.wait(20)

    thread = threading.Thread(target=sleeper)
    thread.start()
    try:
        wait_until(lambda: any(" in sleeper" in stack for stack in stacks.stacks_of_others()), 10, "its stack")
        found = stacks.stacks_of_others()
        assert any(f"{thread.ident:#018x}" in stack and " in sleeper" in stack for stack in found)
        assert not any(" in stacks_of_others" in stack for stack in found), "its own is none of them"
    finally:
        go.set()
        thread.join()


def test_the_time_until_the_dump_is_longer_than_a_short_freeze() -> None:
    assert watchdog.DUMP_S >= 60, "faulthandler's reading of stacks that change has crashed workers"


def test_a_busy_loop_in_python_does_not_cost_the_lease(dsn: str, db: psycopg.Connection, said: Said) -> None:
    run_id = add(db, "spins.thread")

    def meanwhile() -> None:
        renewed = "SELECT lease_until - started_at > interval '4 s' FROM pgsched.runs"
        wait_until(lambda: db.execute(renewed).fetchone() == (True,), 30, "renewals of the lease")

    serve(dsn, lambda: True, meanwhile, lease_s=1.5)
    assert row_of(db, run_id)["state"] in ("succeeded", "queued")
    assert (
        db.execute("SELECT FROM pgsched.attempts WHERE outcome = 'crashed' OR error LIKE 'worker lost:%'").rowcount == 0
    )


def test_a_loop_that_is_not_blocked_is_not_reported(dsn: str, db: psycopg.Connection, said: Said) -> None:
    run_id = add(db, "extends.thread", seconds=1)
    serve(dsn, lambda: state(db, run_id) == "succeeded")
    assert [line for line in said.lines if "loop" in line[0]] == []


FREES_WHILE_IT_LOOKS = """
import gc, sys, threading
from pgsched.worker.watching import stacks

if sys.argv[1] == "unguarded":
    stacks.current_frames = sys._current_frames
go = threading.Event()

def sleeper():
    go.wait()

threads = [threading.Thread(target=sleeper, daemon=True) for _ in range(300)]
for thread in threads:
    thread.start()

class Circle:
    def __init__(self):
        self.own, self.local = self, threading.local()

gc.collect()
gc.set_threshold(150)  # which the frames of so many threads are, and nothing before them
for _ in range(10):
    Circle()
gone = []
gc.callbacks.append(lambda phase, about: gone.append(about["collected"]))
print(len(stacks.stacks_of_others()), sum(gone) > 0, flush=True)
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("guarded", [True, False])
def test_reading_stacks_during_a_garbage_collection_does_not_deadlock(guarded: bool) -> None:
    command = [sys.executable, "-c", FREES_WHILE_IT_LOOKS, "guarded" if guarded else "unguarded"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        told, _ = child.communicate(timeout=30 if guarded else 5)
        assert told == "300 True\n", "garbage was there to be collected"
        assert guarded or sys.version_info >= (3, 11, 9), "from then on Python does it by itself"
    except subprocess.TimeoutExpired:
        assert not guarded
    finally:
        child.kill()
        child.wait()
