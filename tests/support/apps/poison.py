"""An app whose handlers note each start in a file: a quick one, one that waits, and one that kills its worker.

Each line holds the run's argument `n` and the process id.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pgsched import App

app = App("poison")


def note(path: str, n: int) -> None:
    """Append the line in one write, so that a kill cannot leave half of it."""
    handle = os.open(path, os.O_APPEND | os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(handle, f"{n} {os.getpid()}\n".encode())
    os.close(handle)


@app.task(name="mark")
def mark(path: str, n: int) -> None:
    """Note the start, and end after a millisecond."""
    note(path, n)
    time.sleep(0.001)


@app.task(name="die")
def die(path: str, n: int) -> None:
    """Kill the worker while its other handlers run."""
    note(path, n)
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="wait")
def wait(path: str, n: int) -> None:
    """Run until the file `<path>.go` exists."""
    note(path, n)
    while not Path(f"{path}.go").exists():
        time.sleep(0.02)


@app.task(name="large")
def large(data: str) -> None:
    """Accept any argument, and do nothing."""
