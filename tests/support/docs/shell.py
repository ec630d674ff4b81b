"""Run command lines of the pages as a reader would: by bash, with the `pgsched` of this environment.

Invariant: what a page shows as one command is run as one command, and must end with exit code 0. A command that runs
until it is stopped (`worker`, `web`, ...) must come up. It stays until the page ends or shows another command of its
kind, and must then end in good order.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from pgsched.db.embedded.server import bin_dir
from pgsched.errors import EmbeddedUnavailable
from tests.support.waiting import wait_until

ENDLESS = ("worker", "leader", "web", "top")
SERVER = "uvicorn"  # runs the web application of an example
MANAGE = "python manage.py pgsched"  # the same command line in a Django project
# These programs clean up after SIGTERM, and then die of it.
ENDS = dict.fromkeys(("web", "the first web", "top", SERVER), (0, -signal.SIGTERM))
KEPT = ("PATH", "HOME", "LANG", "USER", "LOGNAME", "TMPDIR", "NODE_PATH")


class Failed(AssertionError):
    """An error of a page: what it shows does not work."""


class Missing(Exception):
    """This machine lacks a program that the block needs."""


def commands(text: str) -> list[tuple[int, str]]:
    """Return the command lines of a block, each with its line's offset; continued lines are joined."""
    found: list[tuple[int, str]] = []
    part, start = "", 0
    for offset, line in enumerate(text.splitlines()):
        start = start if part else offset
        part = f"{part}\n{line}" if part else line
        if part.endswith("\\") or not balanced(part):
            continue
        if part.strip() and not part.lstrip().startswith("#"):
            found.append((start, part.replace("\\\n", " ")))
        part = ""
    if part:
        raise Failed(f"this command does not end: {part}")
    return found


def balanced(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def words(command: str) -> list[str]:
    """Return the words of a command, without assignments before it."""
    found = shlex.split(command, comments=True)
    while found and re.match(r"\w+=", found[0]):
        found = found[1:]
    return found


def words_of_pgsched(command: str) -> list[str]:
    """Return the words of a command; `python manage.py pgsched ...` counts as `pgsched ...`."""
    named = words(command)
    return named[2:] if named[:3] == MANAGE.split() else named


def endless(command: str) -> str | None:
    """Return the kind of a command that runs until it is stopped, None for other commands."""
    named = words_of_pgsched(command)
    if named[:1] == [SERVER]:
        return SERVER
    if named[:1] != ["pgsched"] or len(named) < 2 or named[1] not in ENDLESS or "--hash-password" in named:
        return None
    return None if {"--help", "--once"} & {*named} else named[1]


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@contextlib.contextmanager
def terminal(log: IO[bytes] | None) -> Iterator[tuple[int, int | None]]:
    """Yield a program's standard input and output: a terminal that is copied to the log; without a log, no terminal."""
    if log is None:
        yield subprocess.DEVNULL, None
        return
    screen, keys = pty.openpty()
    copy = os.dup(log.fileno())

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while shown := os.read(screen, 65536):
                os.write(copy, shown)
        os.close(screen)
        os.close(copy)

    threading.Thread(target=read, daemon=True).start()
    try:
        yield keys, keys
    finally:
        os.close(keys)


class Shell:
    """The shell of one reader: a folder, an environment, and the programs that run in the background."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env |= {"PGSCHED_DSN": dsn, "PGSCHED_TEST_DSN": dsn, "PGSCHED_HOME": str(folder / "home")}
        self.env |= {"COLUMNS": "200", "TERM": "dumb"}
        self.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.env['PATH']}{os.pathsep}/usr/sbin"
        if shutil.which("psql") is None:
            with contextlib.suppress(EmbeddedUnavailable):
                self.env["PATH"] += f"{os.pathsep}{bin_dir()}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, command: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command, which must end with one of these exit codes; return what it printed to stdout."""
        if exported := re.match(r"export (\w+)=(.*)$", command):
            (self.env[exported[1]],) = shlex.split(exported[2], comments=True) or [""]
            return ""
        self._needs(command)
        # pipefail: a pipe fails if one of its commands does
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env=self.env,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        if done.returncode not in codes:
            raise Failed(f"$ {command}\nexit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def _needs(self, command: str) -> None:
        for part in re.split(r"\||&&", command):
            program = (words(part) or ["true"])[0]
            found = subprocess.run(
                ["bash", "-c", f"type -- {shlex.quote(program)}"], env=self.env, cwd=self.folder, capture_output=True
            )
            if found.returncode != 0:
                raise Missing(program)

    def start(self, kind: str, command: str, is_up: Callable[[], object]) -> None:
        """Start a command in the background, and wait until it is up."""
        self.stop(kind)
        log = self.folder / f"{kind}.log"
        with log.open("wb") as out, terminal(out if kind == "top" else None) as (source, sink):
            process = subprocess.Popen(
                ["bash", "-c", re.sub(rf"\b({MANAGE}|pgsched|{SERVER}) ", r"exec \1 ", command, count=1)],
                cwd=self.folder, env=self.env, stdin=source, stdout=sink or out, stderr=sink or out,
                start_new_session=True,
            )  # fmt: skip
        self._running[kind] = process
        try:
            wait_until(lambda: is_up() or process.poll() is not None, 60, f"{command} to be up")
        finally:
            if process.poll() is not None:
                del self._running[kind]
                raise Failed(f"$ {command}\nended with {process.returncode}\n{log.read_text(errors='replace')[-2000:]}")

    def stop(self, kind: str | None = None) -> None:
        """Stop one command or all with SIGTERM; each must end with exit code 0 or one that ENDS allows."""
        for name in [kind] if kind else [*self._running]:
            process = self._running.pop(name, None)
            if process is None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise Failed(f"{name} did not stop") from None
            if code not in ENDS.get(name, (0,)):
                log = (self.folder / f"{name}.log").read_text(errors="replace")
                raise Failed(f"{name} ended with {code}\n{log[-2000:]}")

    def kill(self) -> None:
        """Kill what still runs."""
        for process in self._running.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()
