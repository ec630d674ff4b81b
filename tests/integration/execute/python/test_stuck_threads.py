"""A handler's thread that does not stop does not delay the end of its process."""

from __future__ import annotations

import subprocess
import sys
import time

STUCK = """
import asyncio, time, uuid
from pgsched import App
from pgsched.execute.python.executor import PythonExecutor
from pgsched.core.model import Claim
app = App("test")
@app.task(name="stuck")
def stuck():
    print("on", flush=True)
    time.sleep(3600)
async def main():
    claim = Claim(1, uuid.uuid4(), 1, 1, "default", 5, "task", "stuck", {})
    await asyncio.wait({asyncio.ensure_future(PythonExecutor(app.tasks, 1).execute(claim))}, timeout=0.1)
asyncio.run(main())
"""


def test_a_stuck_thread_does_not_delay_the_end_of_the_process() -> None:
    started = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.returncode, ended.stderr) == ("on\n", 0, "")
    assert time.monotonic() - started < 50
