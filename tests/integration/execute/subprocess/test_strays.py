"""Processes with a process group of their own, such as timeout(1) and shell jobs, end with their run as well."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from pgsched.core.model import Claim, Result
from pgsched.execute.subprocess import child
from pgsched.execute.subprocess.program import Processes
from pgsched.execute.subprocess.shell import ShellExecutor
from tests.support.executing import cancel_when, children_of, claim, execute

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in Linux's /proc")
ENDS = "timeout 3600 sleep 3600 & until pgrep -P $! sleep; do sleep 0.02; done"
JOBS = "set -m; sleep 3600 & sleep 3600 & touch {on}; wait"
DEAF = "timeout 3600 sh -c 'trap \"\" TERM; touch {on}; while :; do sleep 0.1; done'; true"


def job(line: str, on: Path, kill_after_s: float = 60) -> Claim:
    return claim("shell", line.replace("{on}", str(on)), kill_after_s=kill_after_s)


def test_processes_in_another_group_end_with_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = job(ENDS, tmp_path)
    assert execute(ShellExecutor(Processes()), given).result is Result.SUCCEEDED
    assert children_of(given.token) == []
    monkeypatch.setattr(child, "HAS_PROC", False)
    execute(ShellExecutor(Processes()), given)
    left = children_of(given.token)
    assert left, "without the look at the session it goes on"
    for pid in left:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("line", [JOBS, DEAF], ids=["jobs", "deaf"])
def test_a_stop_reaches_every_group_of_the_session(line: str, tmp_path: Path) -> None:
    on = tmp_path / "on"
    given = job(line, on, kill_after_s=60 if line == JOBS else 0.5)
    cancel_when(ShellExecutor(Processes()), given, on.exists)
    assert children_of(given.token) == []
