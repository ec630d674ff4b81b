"""The worker's end of the line to its supervisor. The rule: a worker that has lost its supervisor ends at once.

The line is a socket. The supervisor first writes the secrets of the environment, where others are not to see them (see
hidden_environment.py), then one byte for each stop that it was asked for; its end of file means that the supervisor is
dead. The worker writes a line with each word about itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping

from pgsched import hidden_environment
from pgsched.execute.subprocess.child import DIE_WITH

VARIABLE = "PGSCHED_SUPERVISED"
# What a worker says of itself: it works; it takes no more because of --max-runs, or of --max-memory.
READY, SPENT, SWOLLEN = "ready", "spent", "swollen"


class Line:
    """The line of this process to its supervisor."""

    def __init__(self, number: int, link: socket.socket) -> None:
        self.number = number
        self._link = link
        self._lock = threading.Lock()
        self._asked = 0
        self._on_stop: Callable[[int], object] | None = None
        threading.Thread(target=self._listen, name="pgsched-supervisor", daemon=True).start()

    def say(self, word: str) -> None:
        """Tell the supervisor."""
        with contextlib.suppress(OSError):  # it is dead, and so are we in a moment
            self._link.sendall(f"{word}\n".encode())

    def on_stop(self, call: Callable[[int], object]) -> None:
        """`call` is told, from another thread, how many stops were asked for so far."""
        with self._lock:
            self._on_stop = call
            if self._asked:
                call(self._asked)

    def _listen(self) -> None:
        # Signals are the main thread's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while data := self._read():
            with self._lock:
                self._asked += len(data)
                if self._on_stop is not None:
                    with contextlib.suppress(RuntimeError):  # its loop has ended already
                        self._on_stop(self._asked)
                else:  # it has not come to work yet
                    os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGKILL)

    def _read(self) -> bytes:
        try:
            return self._link.recv(16)
        except OSError:
            return b""


def line() -> Line | None:
    """The line of this process; None if no supervisor started it. What it starts is told nothing of it."""
    told = os.environ.pop(VARIABLE, None)
    if told is None:
        return None
    number, parent, fd, size = (int(part) for part in told.split(","))
    os.set_inheritable(fd, False)
    DIE_WITH(parent)
    link = socket.socket(fileno=fd)
    with link.makefile("rb", buffering=0) as incoming:
        read = b""
        while len(read) < size and (part := incoming.read(size - len(read))):
            read += part
    if len(read) == size > 0:  # else the supervisor is dead, as the line is about to find
        hidden_environment.give_back(json.loads(read))
    return Line(number, link)


def environment(env: Mapping[str, str], number: int, fd: int) -> tuple[dict[str, str], bytes]:
    """What the worker at place `number` is started with, and what it is to read from the line `fd` before all else."""
    public, secrets = hidden_environment.parted(env)
    first = json.dumps(secrets).encode() if secrets else b""
    return public | {VARIABLE: f"{number},{os.getpid()},{fd},{len(first)}"}, first
