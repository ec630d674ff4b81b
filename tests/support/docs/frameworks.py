"""What the page on frameworks needs: Flask's server with its reloader, which must have one worker and not two."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

from tests.support.docs.shell import free_port
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.docs.playing import Play

ALIVE = "SELECT pid FROM pgsched.workers WHERE stopped_at IS NULL"
DONE = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded' AND args = '{\"user\": 77}'"


def serve_by_flask(play: Play) -> None:
    """Run the page's wsgi.py as it says, send a request, and stop the server by Ctrl-C."""
    port = free_port()
    with (play.folder / "flask.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "flask", "--app", "wsgi", "run", "--debug", "--port", str(port)],
            cwd=play.folder, env=play.shell.env | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: play.db.execute(ALIVE.encode()).fetchall(), 30, "a worker")
        wait_until(lambda: b"Running on" in (play.folder / "flask.log").read_bytes(), 30, "Flask")
        request = urllib.request.Request(f"http://127.0.0.1:{port}/users/77", method="POST")
        wait_until(lambda: answers(request), 30, "an answer")
        wait_until(lambda: play.db.execute(DONE.encode()).fetchone() == (1,), 30, "the run")
        ((pid,),) = play.db.execute(ALIVE.encode()).fetchall()
        assert pid != server.pid, "the worker is in the child process that serves"
        # to the child alone: after Ctrl-C, the reloader kills a child that takes longer than 0.25 s
        os.kill(pid, signal.SIGINT)
        wait_until(lambda: not play.db.execute(ALIVE.encode()).fetchall(), 30, "the worker to sign off")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGINT)
        server.wait(30)


def answers(request: urllib.request.Request) -> bool:
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
