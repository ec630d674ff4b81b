"""Real worker processes: started, signalled and ended by pid; none outlives its fleet. Their logs are files."""

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
    """Something that must come did not come within its bound."""


def wait_until(condition: Callable[[], T], within_s: float, what: str) -> T:
    """Poll until `condition()` is true and give its value. Raises WaitedTooLong with `what` after that."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise WaitedTooLong(f"waited {within_s:g} s for {what}; the last value was {value!r}")
        time.sleep(0.02)
    return value


class Member:
    """One worker process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.pid = process.pid
        self.frozen = False
        self.ended_by: str | None = None  # what the fault did to it, if that ends a process

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.ended_by = "SIGKILL"
        self.signal(signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """SIGSTOP; returns when it has stopped."""
        self.frozen = True
        self.signal(signal.SIGSTOP)
        wait_until(lambda: not self.alive or state_of(self.pid) in "TtZ", 5, f"process {self.pid} to stop")

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen = False
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM: it drains."""
        self.ended_by = "SIGTERM"
        self.signal(signal.SIGTERM)

    def ended(self, within_s: float = 15.0) -> int:
        """Wait for its end; the exit code."""
        wait_until(lambda: not self.alive, within_s, f"the end of process {self.pid}")
        return int(self.process.returncode)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def last_line(self) -> str:
        """What it said last."""
        return (self.log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]

    def logged(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")


def state_of(pid: int) -> str:
    """The state letter of a process in /proc; Z where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


class Fleet:
    """The workers of one stage."""

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
        """Start a process and do not wait for it. `prefix`: a program that becomes it, and its arguments."""
        log = self.folder / f"worker-{len(self.members)}.log"
        command = [*prefix, sys.executable, "-m", "pgsched", "worker", "--app", app or self.app, *options]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")}
        environment = kept | {"PGSCHED_DSN": dsn or self.dsn} | self.env | dict(env or {})
        us = os.getpid()
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, cwd=self.cwd, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                preexec_fn=lambda: DIE_WITH(us),  # noqa: PLW1509 - also when this process is killed
            )  # fmt: skip
        self.members.append(Member(process, log))
        return self.members[-1]

    def await_start(self, *started: Member) -> None:
        """Wait until each is at work. Raises WaitedTooLong."""
        for member in started:
            wait_until(lambda m=member: m.logged("started") or not m.alive, START_S, "a worker to start")  # type: ignore[misc]
            if not member.alive:
                raise WaitedTooLong(f"the worker ended with {member.process.returncode}: {member.last_line}")

    def by_pid(self, pid: int) -> Member | None:
        return next((member for member in self.members if member.pid == pid), None)

    def end(self) -> None:
        """SIGKILL whatever still lives, stopped or not."""
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                if member.alive:
                    os.kill(member.pid, signal.SIGKILL)
            member.process.wait()
