"""The rule: every process group of this worker is on its guard's list from its first to its last moment.

The forked child puts itself on the list, before its program begins: what that starts at once would not end with it, if
the worker died before it had told the guard.
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
GUARD = Path(__file__).with_name("guard.py")


class Groups:
    """The live process groups, and the guard process that kills them should this process die."""

    def __init__(self) -> None:
        self._live: set[int] = set()
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have a guard, so that the first group need not wait for one."""
        if self._guard is not None and self._guard.poll() is None:
            return
        self._end(kill=True)
        command = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid())]
        self._guard = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0, start_new_session=True
        )
        assert self._guard.stdin is not None
        os.set_blocking(self._guard.stdin.fileno(), False)  # a guard that hangs must not hang the worker
        for group in self._live:
            self._tell("+", group)

    def enlisting(self) -> Callable[[], None]:
        """What a forked child does that leads a group of its own. Everything is looked up before the fork."""
        pipe = None if self._guard is None or self._guard.stdin is None else self._guard.stdin.fileno()
        write, getpid, handle = os.write, os.getpid, signal.signal
        broken, ignored, default = signal.SIGPIPE, signal.SIG_IGN, signal.SIG_DFL

        def enlist() -> None:
            if pipe is None:
                return
            handle(broken, ignored)  # the guard may just have been killed: then the worker finds out, and has another
            with contextlib.suppress(OSError):
                write(pipe, b"?%d\n" % getpid())
            handle(broken, default)

        return enlist

    def not_begun(self) -> None:
        """The last child that was to enlist has become no program: its number may be somebody else's soon."""
        self._tell("?", 0)

    def add(self, group: int) -> None:
        self._live.add(group)
        self._tell("+", group)

    def remove(self, group: int) -> None:
        if group in self._live:
            self._live.discard(group)
            self._tell("-", group)

    def close(self) -> None:
        """End the guard; it kills what is still on its list."""
        self._end(kill=False)
        self._live.clear()

    def _tell(self, sign: str, group: int) -> None:
        if self._guard is None or self._guard.stdin is None:
            return
        try:
            os.write(self._guard.stdin.fileno(), f"{sign}{group}\n".encode())
        except OSError:  # it was killed or hangs: the next start() makes a new one with the whole list
            self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        guard, self._guard = self._guard, None
        if guard is None or guard.stdin is None:
            return
        if kill:  # it must not take its list with it
            guard.kill()
        guard.stdin.close()
        try:
            guard.wait(END_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
