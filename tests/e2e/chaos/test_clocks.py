"""A chaos clock moves the wall time of running processes that have its environment, but not their monotonic time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgsched.chaos.site import clocks
from pgsched.chaos.site.clocks import Clock

TELLS = "import time\nwhile input(): print(time.time(), time.monotonic(), flush=True)"


@pytest.mark.skipif(clocks.compiler() is None, reason=f"no C compiler ({clocks.INSTALL})")
def test_a_clock_moves_wall_time_but_not_monotonic_time_of_running_processes(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    with subprocess.Popen(
        [sys.executable, "-c", TELLS], env={**os.environ, **clock.environment}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for ahead_s in (0, 3600, -7200, 0):
            clock.set(ahead_s)
            process.stdin.write("ask\n")
            process.stdin.flush()
            wall, monotonic = map(float, process.stdout.readline().split())
            assert wall == pytest.approx(time.time() + ahead_s, abs=10)
            assert monotonic == pytest.approx(time.monotonic(), abs=10)
        process.stdin.write("\n")


def test_a_missing_compiler_is_reported_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "compiler", lambda: None)
    with pytest.raises(RuntimeError, match="no C compiler is installed"):
        Clock(tmp_path / "clock")
