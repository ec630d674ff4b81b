"""The link between a worker process and its supervisor, a socket; this module is mostly the worker's end.

Invariant: a worker that has lost its supervisor ends at once.

- The supervisor first writes the secrets of the environment, so that other users cannot see them (see
  hidden_environment.py).
- Then it writes one byte for each stop that was requested. Its end of file means that the supervisor is dead.
- The worker process writes a line with each word about its state, once for all of its apps.
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
# A worker's state: it works; it takes no more runs because of --max-runs, of --max-memory, or for another reason.
READY, SPENT, SWOLLEN, DRAINED = "ready", "spent", "swollen", "drained"


class SupervisorLink:
    """The worker's end of the link. `number`: the worker's place."""

    def __init__(self, number: int, link: socket.socket) -> None:
        self.number = number
        self._link = link
        self._lock = threading.Lock()
        self._stops = 0
        self._on_stop: Callable[[int], object] | None = None
        threading.Thread(target=self._listen, name="pgsched-supervisor", daemon=True).start()

    def say(self, word: str) -> None:
        """Send a word about this worker's state to the supervisor."""
        with contextlib.suppress(OSError):  # the supervisor is dead, and this process ends in a moment
            self._link.sendall(f"{word}\n".encode())

    def on_stop(self, call: Callable[[int], object]) -> None:
        """Call `call(stops)` with the stops requested so far: now if there are any, later from another thread."""
        with self._lock:
            self._on_stop = call
            if self._stops:
                call(self._stops)

    def _listen(self) -> None:
        # Signals are for the main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while data := self._read():
            with self._lock:
                self._stops += len(data)
                if self._on_stop is not None:
                    with contextlib.suppress(RuntimeError):  # the worker's event loop has ended already
                        self._on_stop(self._stops)
                else:  # the worker has not come to work yet
                    os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGKILL)

    def _read(self) -> bytes:
        try:
            return self._link.recv(16)
        except OSError:
            return b""


def connect_supervisor() -> SupervisorLink | None:
    """Return the link of this process, or None where no supervisor started it.

    The variable is removed from the environment, so that child processes do not get it.
    """
    variable = os.environ.pop(VARIABLE, None)
    if variable is None:
        return None
    number, parent, fd, size = (int(part) for part in variable.split(","))
    os.set_inheritable(fd, False)
    DIE_WITH(parent)
    link = socket.socket(fileno=fd)
    with link.makefile("rb", buffering=0) as incoming:
        secrets = b""
        while len(secrets) < size and (part := incoming.read(size - len(secrets))):
            secrets += part
    if len(secrets) == size > 0:  # otherwise the supervisor is dead, which the link notices next
        hidden_environment.restore_secrets(json.loads(secrets))
    return SupervisorLink(number, link)


def environment(env: Mapping[str, str], number: int, fd: int) -> tuple[dict[str, str], bytes]:
    """Return the environment for the worker at place `number`, and the bytes to send it first on the socket `fd`."""
    public, secrets = hidden_environment.split_environment(env)
    first = json.dumps(secrets).encode() if secrets else b""
    return public | {VARIABLE: f"{number},{os.getpid()},{fd},{len(first)}"}, first
