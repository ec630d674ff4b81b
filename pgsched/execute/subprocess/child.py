"""A child process in its own session: starts it, reads its output, signals its whole session and reaps it.

Invariant: the child ends with its worker and is always reaped.

Fork from the event loop's thread: the kernel sends the parent-death signal when the *thread* that forked ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgsched.execute.anonymous_file import open_anonymous_file
from pgsched.execute.output.record import Record
from pgsched.execute.subprocess.account import Account

PR_SET_PDEATHSIG = 1
READ_BYTES = 65536
BURST_BYTES = 1 << 20
PAUSE_S = 0.01  # after each burst, so that a flood of output leaves time for the event loop's other work
LOOK_S, LONGEST_LOOK_S = 0.02, 0.5
HAS_PROC = Path("/proc/self/stat").exists()
KILLS = 3  # a process may start another one just before it is killed


@dataclass(frozen=True, slots=True)
class Program:
    """A program to start: its command line, environment, directory and input."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    stdin: str = ""
    account: Account | None = None  # the user it runs as; None: the worker's user


def _death_signal() -> Callable[[int], None]:
    """Return a function for the forked child that makes the child end with its parent.

    Everything is looked up before the fork, because afterwards that is not safe.
    """
    if not sys.platform.startswith("linux"):
        return lambda parent: None
    prctl = ctypes.CDLL(None, use_errno=False).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    getppid, leave = os.getppid, os._exit

    def die_with(parent: int) -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if getppid() != parent:  # the parent died before the call
            leave(127)

    return die_with


DIE_WITH = _death_signal()


def list_session(session: int) -> Iterator[int]:
    """Yield the processes of a session that have not ended; none where the system has no Linux /proc."""
    for name in os.listdir("/proc") if HAS_PROC else ():  # noqa: PTH208 - read after each run: Paths are slow
        if name.isdigit():
            with contextlib.suppress(OSError):  # the process has ended
                if os.getsid(int(name)) == session and process_state(name) not in "ZX":
                    yield int(name)


def process_state(pid: str) -> str:
    """Return Linux's letter for the state of a process; Z: it has ended and is not reaped yet.

    Raises OSError where the process does not exist.
    """
    return Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split(maxsplit=1)[0]


def kill_session(session: int) -> None:
    """Kill the remaining processes of a session, except those of other users (Linux only)."""
    for _ in range(KILLS):
        found = list(list_session(session))
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


class ProcessSession:
    """A running process and its session.

    The session holds the group of the process, and the groups that timeout(1) or a shell with job control make. Make a
    Group on the event loop's thread only.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._gone = False
        self._is_known = True
        self.group = process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code after the process has ended: -N for signal N, None where it is unknown.

        The code is unknown where other code in this process has received it: the kernel reports an exit code only once.
        """
        if not self._is_known:
            return None
        return self._process.returncode if self._process.returncode is not None else -signal.SIGKILL

    async def ended(self) -> None:
        """Wait for the process itself; its group may live on."""
        with contextlib.suppress(OSError, AttributeError):
            await self._readable(os.pidfd_open(self._process.pid))
        while not self._is_reaped():  # noqa: ASYNC110 - without a pidfd there is no notification
            await asyncio.sleep(LOOK_S)

    async def all_ended(self) -> None:
        """Wait for the process and everything in its session."""
        await self.ended()
        pause_s = LOOK_S
        while self.signal(0) and not self._only_zombies():  # there is no notification for an empty session
            self._reap_adopted()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_LOOK_S)

    def signal(self, number: int) -> bool:
        """Signal the whole session; return False where no process is left that can be signalled."""
        if self._gone:  # the number may belong to another group by now
            return False
        others = [pid for pid in list_session(self.group) if not self._has(pid)]
        refused = False
        try:
            os.killpg(self.group, number)
        except ProcessLookupError:
            self._gone = not others
        except PermissionError:  # the rest of the group belongs to another user and cannot be signalled
            refused = True
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        return bool(others) or not (self._gone or refused)

    def kill(self) -> None:
        """End the whole session."""
        if self.signal(signal.SIGKILL):
            kill_session(self.group)

    def _is_reaped(self) -> bool:
        """Check whether the process has ended, and reap it.

        Popen.poll is not used. Where a handler's os.wait() or an ignored SIGCHLD took the exit code, poll reports 0, a
        success.
        """
        process = self._process
        if process.returncode is None:
            try:
                pid, status = os.waitpid(process.pid, os.WNOHANG)
            except ChildProcessError:
                self._is_known, process.returncode = False, 0
            else:
                process.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return process.returncode is not None

    def _has(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return os.getpgid(pid) == self.group
        return True  # the process has ended

    def _only_zombies(self) -> bool:
        """Check whether every process has ended, reaped or not: a container's first process may never reap."""
        return HAS_PROC and next(list_session(self.group), None) is None

    def _reap_adopted(self) -> None:
        """Reap orphans of the group: as process 1 of a container, the worker inherits them."""
        with contextlib.suppress(ChildProcessError):
            while self._process.returncode is not None and os.waitpid(-self.group, os.WNOHANG)[0]:
                pass

    async def _readable(self, pidfd: int) -> None:
        ready = asyncio.Event()
        self._loop.add_reader(pidfd, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)


def start_process(program: Program, stdout: int, stderr: int, enlist: Callable[[], None]) -> subprocess.Popen[bytes]:
    """Start a process with its output to these descriptors.

    `enlist`: called in the forked child before the program begins.
    """
    parent, account = os.getpid(), program.account
    rights: dict[str, Any] = {}

    def begin() -> None:
        DIE_WITH(parent)
        enlist()

    if account is not None:
        rights = {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
    # The input is a file and not a pipe, so that a child that does not read it blocks nothing.
    with open_anonymous_file() as stdin:
        stdin.write(program.stdin.encode())
        stdin.seek(0)
        if account is not None:  # otherwise it could not open /dev/stdin, /dev/stdout and /dev/stderr
            for opened in (stdin.fileno(), stdout, stderr):
                os.fchown(opened, account.uid, account.gid)
        return subprocess.Popen(
            program.argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd=program.cwd, env=program.env,
            start_new_session=True, preexec_fn=begin,  # noqa: PLW1509
            **rights,
        )  # fmt: skip


class Child(ProcessSession):
    """A running program and its output. Make it on the event loop's thread."""

    def __init__(self, program: Program, record: Record, enlist: Callable[[], None]) -> None:
        self._record = record
        self._burst = 0
        self._pipes: dict[int, str] = {}
        theirs: list[int] = []
        try:
            for stream in ("stdout", "stderr"):
                ours, other = os.pipe()
                self._pipes[ours] = stream
                theirs.append(other)
            process = start_process(program, theirs[0], theirs[1], enlist)
        except BaseException:
            for pipe in self._pipes:
                os.close(pipe)
            raise
        finally:
            for pipe in theirs:
                os.close(pipe)
        super().__init__(process)
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
            self._listen(pipe)

    def finish(self) -> None:
        """Read the output that is still in the pipes and close them; after this call the record does not change.

        A process that left the group may hold the other ends of the pipes, so their end of file is not waited for.
        """
        pipes, self._pipes = self._pipes, {}
        for pipe, stream in pipes.items():
            self._loop.remove_reader(pipe)
            for _ in range(BURST_BYTES // READ_BYTES):
                if not self._read(pipe, stream):
                    break
            os.close(pipe)
            self._reap_adopted()

    def _listen(self, pipe: int) -> None:
        if pipe in self._pipes:
            self._loop.add_reader(pipe, self._on_output, pipe)

    def _on_output(self, pipe: int) -> None:
        count = self._read(pipe, self._pipes[pipe])
        self._burst += count or 0
        if count == 0:
            self._loop.remove_reader(pipe)
        elif self._burst >= BURST_BYTES:
            self._burst = 0
            self._loop.remove_reader(pipe)
            self._loop.call_later(PAUSE_S, self._listen, pipe)

    def _read(self, pipe: int, stream: str) -> int | None:
        """Read some output; return its length, 0 at the end of file, or None when there is none yet."""
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return None
        self._record.add(stream, data)
        return len(data)
