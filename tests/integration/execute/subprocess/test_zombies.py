"""A zombie that no process reaps, as in a container without an init, does not delay a stop."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from pgsched.execute.subprocess import child
from pgsched.execute.subprocess.program import Processes
from pgsched.execute.subprocess.shell import ShellExecutor
from tests.support.executing import cancel_when, claim

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the states in Linux's /proc"),
]
KEEPER = """
import os, sys, time
group, leader = os.getpgrp(), os.getpid()
if os.fork() == 0:
    os.setpgid(0, 0)  # the keeper leaves the group, and never reaps its child, which comes back into it
    if os.fork() == 0:
        os.setpgid(0, group)
        open(sys.argv[1], "w").close()
        time.sleep(3600)
    while os.getppid() == leader:
        time.sleep(0.02)
    time.sleep(float(sys.argv[2]))
    os._exit(0)
time.sleep(3600)
"""
KEPT_S, KILL_AFTER_S = 6, 2


def stopping_s(tmp_path: Path) -> float:
    """Return the seconds that it takes to stop a group in which a zombie is left."""
    (tmp_path / "keeper.py").write_text(KEEPER)
    line = f"exec {sys.executable} {tmp_path}/keeper.py {tmp_path}/on {KEPT_S}"
    began: list[float] = []

    def has_begun() -> bool:
        began.append(time.monotonic())
        return (tmp_path / "on").exists()

    cancel_when(ShellExecutor(Processes()), claim("shell", line, kill_after_s=KILL_AFTER_S), has_begun)
    return time.monotonic() - began[-1]


def test_a_zombie_that_is_not_reaped_does_not_delay_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stopping_s(tmp_path) < KILL_AFTER_S
    (tmp_path / "on").unlink()
    monkeypatch.setattr(child, "HAS_PROC", False)
    assert stopping_s(tmp_path) >= KILL_AFTER_S, "without the look at their states it does"
