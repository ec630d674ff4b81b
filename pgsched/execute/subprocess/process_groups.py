"""The live process groups of a worker, and the worker's side of the guard process (process_guard.py).

Invariant: each process group is on the guard's list from its first to its last moment.

The forked child adds itself to the list before its program begins. Otherwise the worker could die before it had
reported the group, and processes that the program starts at once would live on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

END_S = 2.0
GUARD = Path(__file__).with_name("process_guard.py")


class Groups:
    """The live process groups, and the guard process that kills them if this process dies."""

    def __init__(self) -> None:
        self._live: set[int] = set()
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the guard unless it runs, so that the first group need not wait for it."""
        if self._guard is not None and self._guard.poll() is None:
            return
        self._end(kill=True)
        command = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid())]
        self._guard = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0, start_new_session=True
        )
        assert self._guard.stdin is not None
        os.set_blocking(self._guard.stdin.fileno(), False)  # a guard that hangs must not block the worker
        for group in self._live:
            self._tell("+", group)

    def enlisting(self) -> Callable[[], None]:
        """Return the function with which a forked child, which leads a new group, adds itself to the list.

        Everything is looked up before the fork.
        """
        pipe = None if self._guard is None or self._guard.stdin is None else self._guard.stdin.fileno()
        write, getpid, handle = os.write, os.getpid, signal.signal
        broken, ignored, default = signal.SIGPIPE, signal.SIG_IGN, signal.SIG_DFL

        def enlist() -> None:
            if pipe is None:
                return
            handle(broken, ignored)  # the guard may have been killed; the worker notices and starts another one
            with contextlib.suppress(OSError):
                write(pipe, b"?%d\n" % getpid())
            handle(broken, default)

        return enlist

    def not_begun(self) -> None:
        """Report that the last forked child did not become a program: another process may soon get its number."""
        self._tell("?", 0)

    def add(self, group: int) -> None:
        """Put a group on the list."""
        self._live.add(group)
        self._tell("+", group)

    def remove(self, group: int) -> None:
        """Take a group off the list."""
        if group in self._live:
            self._live.discard(group)
            self._tell("-", group)

    def close(self) -> None:
        """End the guard, which kills the groups that are still on its list."""
        self._end(kill=False)
        self._live.clear()

    def _tell(self, sign: str, group: int) -> None:
        if self._guard is None or self._guard.stdin is None:
            return
        try:
            os.write(self._guard.stdin.fileno(), f"{sign}{group}\n".encode())
        except OSError:  # the guard was killed or hangs; the next start() makes a new one with the whole list
            self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        guard, self._guard = self._guard, None
        if guard is None or guard.stdin is None:
            return
        if kill:  # killed first, because at the end of file it would kill the groups on its list
            guard.kill()
        guard.stdin.close()
        try:
            guard.wait(END_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
