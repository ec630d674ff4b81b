"""Garbage collection in the processes of commands: short commands avoid it, long-running ones tune it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import iscoroutine
from typing import Any

import pytest

from pgsched import gc_tuning
from pgsched.config import Settings
from pgsched.web import serving
from pgsched.worker import process
from pgsched.worker.supervision import supervisor

pytestmark = pytest.mark.scram

WATCHED = """
import atexit, gc, json, sys
from pgsched.__main__ import main

began = gc.get_stats()
def tell():
    collected = sum(now["collections"] - before["collections"] for now, before in zip(gc.get_stats(), began))
    print(json.dumps([collected, gc.get_freeze_count(), gc.get_count()[0]]), file=sys.stderr)
atexit.register(tell)
main()
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["status", "job list", "run list", "doctor"])
def test_a_short_command_never_collects_garbage(command: str, dsn: str) -> None:
    words = [sys.executable, "-c", WATCHED, *command.split(), "--dsn", dsn]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    collected, frozen, new = json.loads(done.stderr.splitlines()[-1])
    assert collected == 0, "while it was imported and at work"
    assert frozen > 10_000 and new < 1000, "nor is all of it looked through at the end"


@pytest.fixture
def frozen() -> Iterator[list[int]]:
    """A list for the numbers of frozen objects. Afterwards the settings of the garbage collector are restored."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc_tuning.tune_for_command()
    yield []
    gc.unfreeze()
    gc.set_threshold(*before)


class Began(Exception):
    """Raised at the point where the process would begin its long work."""


@pytest.mark.parametrize(
    ("module", "where", "begin"),
    [
        (process.shutdown, "run_loop", lambda dsn: process.run_worker(Settings(dsn))),
        (process.Leader, "run", lambda dsn: process.run_leader(Settings(dsn))),
        (supervisor.asyncio, "run", lambda dsn: supervisor.supervise(2, dsn)),
        (
            serving.uvicorn.Server,
            "run",
            lambda dsn: serving.serve_console(serving.Settings("", "127.0.0.1", 0), dsn, bool),
        ),
    ],
    ids=["worker", "leader", "supervisor", "web"],
)
def test_a_long_running_command_sets_thresholds_and_freezes_its_imports(
    module: Any,
    where: str,
    begin: Callable[[str], object],
    dsn: str,
    frozen: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def goes_on(work: Any, **_: object) -> None:
        frozen.append(gc.get_freeze_count())
        work.close() if iscoroutine(work) else None
        raise Began

    monkeypatch.setattr(module, where, goes_on)
    with pytest.raises(Began):
        begin(dsn)
    assert gc.get_threshold()[0] == gc_tuning.LASTING
    assert frozen[0] > 10_000


def test_only_a_short_command_skips_the_last_collection(frozen: list[int]) -> None:
    """In a long-running process the remaining objects may belong to a handler."""
    gc_tuning.tune_for_long_run()
    count = gc.get_freeze_count()
    new = [[] for _ in range(10_000)]
    gc_tuning.skip_last_collection()
    assert gc.get_freeze_count() <= count
    gc_tuning.tune_for_command()
    gc_tuning.skip_last_collection()
    assert gc.get_freeze_count() > count + len(new) / 2
