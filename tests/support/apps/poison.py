"""An app whose handlers write their starts into a file: quick ones, some that wait, and one that kills its worker.

A line is the number of the run's argument and the process.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pgsched import App

app = App("poison")


def note(path: str, n: int) -> None:
    """One write, which no kill can cut."""
    handle = os.open(path, os.O_APPEND | os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(handle, f"{n} {os.getpid()}\n".encode())
    os.close(handle)


@app.task(name="mark")
def mark(path: str, n: int) -> None:
    """Over after a millisecond."""
    note(path, n)
    time.sleep(0.001)


@app.task(name="die")
def die(path: str, n: int) -> None:
    """Kills its worker while others work."""
    note(path, n)
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="wait")
def wait(path: str, n: int) -> None:
    """Goes on until there is a file that says otherwise."""
    note(path, n)
    while not Path(f"{path}.go").exists():
        time.sleep(0.02)


@app.task(name="large")
def large(data: str) -> None:
    """Takes what it is given."""
