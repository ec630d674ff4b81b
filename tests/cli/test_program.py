"""The process of a command: what it does beside the command itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("command", ["status", "job list", "run list", "doctor"])
def test_a_short_command_looks_for_no_garbage(command: str, dsn: str) -> None:
    words = [sys.executable, "-c", WATCHED, *command.split(), "--dsn", dsn]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    collected, frozen, new = json.loads(done.stderr.splitlines()[-1])
    assert collected == 0, "while it was imported and at work"
    assert frozen > 10_000 and new < 1000, "nor is all of it looked through at the end"
