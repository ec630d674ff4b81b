"""Real worker processes of one fault: start, signal and end them by process id.

Invariant: no process outlives its fleet. Each process logs to a file of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pgsched.execute.subprocess.child import DIE_WITH

T = TypeVar("T")
START_S = 30.0


class WaitedTooLong(Exception):
    """An expected condition did not become true within its bound."""


def wait_until(condition: Callable[[], T], within_s: float, what: str) -> T:
    """Poll until `condition()` is true, and return its value.

    Raises WaitedTooLong, naming `what`, after `within_s` seconds.
    """
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise WaitedTooLong(f"waited {within_s:g} s for {what}; the last value was {value!r}")
        time.sleep(0.02)
    return value


class Member:
    """One worker process: its pid, its log file, and what the fault has done to it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.pid = process.pid
        self.frozen = False
        self.ended_by: str | None = None  # the signal or cause by which the fault ends the process

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self.ended_by = "SIGKILL"
        self.signal(signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """Send SIGSTOP, and wait until the process has stopped."""
        self.frozen = True
        self.signal(signal.SIGSTOP)
        wait_until(lambda: not self.alive or state_of(self.pid) in "TtZ", 5, f"process {self.pid} to stop")

    def thaw(self) -> None:
        """Send SIGCONT."""
        self.frozen = False
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM; the worker drains and ends."""
        self.ended_by = "SIGTERM"
        self.signal(signal.SIGTERM)

    def ended(self, within_s: float = 15.0) -> int:
        """Wait until the process has ended, and return its exit code.

        Raises WaitedTooLong after `within_s` seconds.
        """
        wait_until(lambda: not self.alive, within_s, f"the end of process {self.pid}")
        return int(self.process.returncode)

    @property
    def alive(self) -> bool:
        """Tell whether the process still runs."""
        return self.process.poll() is None

    @property
    def last_line(self) -> str:
        """Return the last line of the log."""
        return (self.log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]

    def logged(self, text: str) -> bool:
        """Check whether the log contains this text."""
        return text in self.log.read_text(errors="replace")


def state_of(pid: int) -> str:
    """Return the state letter of a process from /proc, or Z if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


class Fleet:
    """The worker processes of one stage, with the environment and folder that they are started in."""

    def __init__(
        self, dsn: str, folder: Path, app: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.dsn = dsn
        self.folder = folder
        self.app = app
        self.env = dict(env or {})
        self.cwd = cwd
        self.members: list[Member] = []

    def launch(
        self,
        *options: str,
        dsn: str | None = None,
        env: Mapping[str, str] | None = None,
        app: str | None = None,
        prefix: Sequence[str] = (),
    ) -> Member:
        """Start a worker and return at once.

        `prefix` is a program with its arguments that replaces itself by the worker, such as `ip netns exec`.
        """
        log = self.folder / f"worker-{len(self.members)}.log"
        served = () if "--app" in options else ("--app", app or self.app)
        command = [*prefix, sys.executable, "-m", "pgsched", "worker", *served, *options]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")}
        environment = kept | {"PGSCHED_DSN": dsn or self.dsn} | self.env | dict(env or {})
        us = os.getpid()
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, cwd=self.cwd, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                preexec_fn=lambda: DIE_WITH(us),  # noqa: PLW1509 - the worker ends also if this process is killed
            )  # fmt: skip
        self.members.append(Member(process, log))
        return self.members[-1]

    def await_start(self, *started: Member) -> None:
        """Wait until each of these workers has logged that it started.

        Raises WaitedTooLong if a worker ends, or does not start within 30 s.
        """
        for member in started:
            wait_until(lambda m=member: m.logged("started") or not m.alive, START_S, "a worker to start")  # type: ignore[misc]
            if not member.alive:
                raise WaitedTooLong(f"the worker ended with {member.process.returncode}: {member.last_line}")

    def by_pid(self, pid: int) -> Member | None:
        """Return the member with this process id, or None."""
        return next((member for member in self.members if member.pid == pid), None)

    def end(self) -> None:
        """Send SIGKILL to every process that still lives, stopped ones included."""
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                if member.alive:
                    os.kill(member.pid, signal.SIGKILL)
            member.process.wait()
