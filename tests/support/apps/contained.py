"""An app for hardened containers: a handler in a thread, one in a child process, and one that leaves an orphan."""

from __future__ import annotations

import os
import subprocess
import sys

from pgsched import App

app = App("contained")


@app.task(name="thread")
def thread() -> int:
    return os.getpid()


@app.task(name="process", run_in="process")
def process() -> int:
    return os.getpid()


@app.task(name="orphan")
def orphan() -> None:
    """Start a child process whose own child outlives it."""
    subprocess.run([sys.executable, "-c", "import os, time; os.fork() or (os.setsid(), time.sleep(0.2))"], check=True)
