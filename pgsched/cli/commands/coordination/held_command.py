"""Run a command while a lock is held: pass signals on to it, and end it before a lost lease ends.

Invariant: the command never runs without the lock. When the lease can not be renewed, it gets SIGTERM, and SIGKILL
before the lease ends; so it does when the lock is taken away. `command_guard` does the same for the case that
this process cannot.

On a terminal the command stays in the process group of this process, so that the keys of the terminal reach it as ever.
Elsewhere it gets a session of its own, and signals for this process are passed on to its group.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pgsched.cli.commands.coordination import command_guard
from pgsched.errors import LeaseLost
from pgsched.execute.subprocess.child import DIE_WITH
from pgsched.recipes.lock import Lock
from pgsched.recipes.sessions.session import now

GUARD = Path(command_guard.__file__)
FENCE = "PGSCHED_FENCE"
LONGEST_GRACE_S = 5.0  # from SIGTERM to the end of the lease
GRACE = 0.25  # a part of the ttl, at most
MARGIN = 0.5  # of that, from SIGKILL to the end: a busy machine kills late
LOOK_S = 0.02
PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
OF_KEYS = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends them to the command as well


def in_foreground() -> bool:
    """Return whether this process is in the foreground of a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class Guard:
    """The guard process of one command (see command_guard), at work. A guard that was killed is done without."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._process.stdout as ready:
            ready.read(1)  # one byte when it is at work, none where it was killed
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)

    def enlisting(self) -> Callable[[], None]:
        """Return the function with which the forked child names itself before the command begins."""
        pipe, write, getpid = self._pipe, os.write, os.getpid

        def enlist() -> None:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the guard may have been killed
            with contextlib.suppress(OSError):
                write(pipe, b"+%d\n" % getpid())
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)

        return enlist

    def extend(self, deadline: float) -> None:
        """Let the command live until this instant, on the clock of leases."""
        self._tell(b"=%.3f\n" % deadline)

    def close(self) -> bool:
        """End the guard: the command has ended. Return whether the guard has killed it."""
        self._tell(b"-\n")
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        return self._process.wait() == command_guard.HAS_KILLED

    def _tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._pipe, line)


class HeldCommand:
    """A command that runs while a lock is held. `ttl_s`: the time to live of the lock's session."""

    def __init__(self, lock: Lock, ttl_s: float, command: list[str]) -> None:
        self._lock = lock
        self._command = command
        self._grace_s = min(LONGEST_GRACE_S, GRACE * ttl_s)
        self._margin_s = MARGIN * self._grace_s
        self._on_terminal = in_foreground()
        self._events: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # signals that came before the process
        self._was_stopped = False

    @contextmanager
    def passing_signals_on(self) -> Iterator[None]:
        """Pass signals for this process on to the command; when it has ended, ignore them."""
        before: dict[int, Any] = {}
        try:
            for number in PASSED_ON:
                if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, and in the background of a script
                    before[number] = signal.signal(number, self._heard)
            before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: self._events.put(None))
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self) -> int:
        """Run it to its end; return its exit code, 128 + N where signal N has ended it.

        Call it within `passing_signals_on`. Raises OSError where it cannot be started, and LeaseLost where the lock was
        lost before.
        """
        guard = Guard()
        try:
            left_s = self._lock.lease_left_s
            if left_s <= self._grace_s:
                raise LeaseLost(f'"{self._lock.name}" is not held any more; the command was not started')
            guard.extend(now() + left_s - self._margin_s)
            process = self._start(guard)
            threading.Thread(target=self._wait_lost, name="pgsched-lock-lost", daemon=True).start()
            while process.poll() is None and not self._must_stop(guard):
                with contextlib.suppress(queue.Empty):
                    self._events.get(timeout=self._pause_s())
            if process.returncode is None:
                self._stop(process)
        finally:
            if guard.close():  # while this process stood still
                self._was_stopped = True
        return process.returncode if process.returncode >= 0 else 128 - process.returncode

    @property
    def was_stopped(self) -> bool:
        """Whether it was ended because of the lock."""
        return self._was_stopped

    def _start(self, guard: Guard) -> subprocess.Popen[bytes]:
        parent, enlist = os.getpid(), guard.enlisting()

        def begin() -> None:
            DIE_WITH(parent)
            enlist()

        environment = os.environ | {FENCE: str(self._lock.fence)}
        process = self._process = subprocess.Popen(
            self._command,
            env=environment,
            start_new_session=not self._on_terminal,
            preexec_fn=begin,  # noqa: PLW1509
        )
        for number in self._early:
            self._pass_on(number)
        return process

    def _wait_lost(self) -> None:
        with contextlib.suppress(Exception):  # it was given back meanwhile
            self._lock.wait_lost()
        self._events.put(None)

    def _pause_s(self) -> float:
        """Return the seconds until the lease is to be looked at again."""
        return max(0.01, min(1.0, self._grace_s, self._lock.lease_left_s - self._grace_s))

    def _must_stop(self, guard: Guard) -> bool:
        """Return whether the lease is lost, or about to end."""
        left_s = self._lock.lease_left_s
        if left_s > 0:
            guard.extend(now() + left_s - self._margin_s)
        return left_s <= self._grace_s

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """End the command and all that it has started."""
        self._was_stopped = True
        left_s = min(self._lock.lease_left_s, self._grace_s) or self._grace_s
        until = time.monotonic() + max(0.0, left_s - self._margin_s)
        known = command_guard.processes_of(process.pid)
        command_guard.signal_processes(known, signal.SIGTERM)
        command_guard.signal_processes(known, signal.SIGCONT)  # a stopped process gets SIGTERM only when it continues
        # the first process is reaped last, so that no other one gets its number meanwhile
        while command_guard.processes_of(process.pid, known) and time.monotonic() < until:
            time.sleep(LOOK_S)
        command_guard.kill_all(process.pid, known)
        process.wait()

    def _heard(self, number: int, _: Any) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        """Pass a signal on to the command: to its process group, or on a terminal to its first process."""
        process = self._process
        if process is None or process.returncode is not None or (self._on_terminal and number in OF_KEYS):
            return
        with contextlib.suppress(OSError):
            (os.kill if self._on_terminal else os.killpg)(process.pid, number)
