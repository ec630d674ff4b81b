"""The guard, a small program beside each worker: kills the worker's processes when the worker is gone.

Invariant: when the worker is gone, so is every process it started, grandchildren included.

The parent-death signal reaches only a process that the worker started itself. The guard reads a pipe that only the
worker has open for writing. At the end of file the worker is dead, however it died. The guard then kills every group on
its list, with the rest of the session that the group leads.

The module is run as a script and imports nothing of pgsched.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

LOOK_S = 1.0
KILLS = 3  # a process may start another one just before it is killed


def watch_groups(pipe: int, worker: int) -> set[int]:
    """Read `+group` and `-group` lines until the worker is gone; return the groups that are left.

    - `?group` comes from a forked child that is about to become a program. It counts until a `+` or `-` line of that
      group, or the next `?` line.
    - `?0` says that the child did not become a program.
    """
    groups: set[int] = set()
    begun = 0
    partial_line = b""
    while True:
        # Read all lines before the end of file counts: the worker may die before this program runs its first line.
        # A process forked by user code may hold the pipe open; then a change of this program's parent shows the death.
        if not select.select([pipe], [], [], LOOK_S)[0]:
            if os.getppid() != worker:
                break
            continue
        data = os.read(pipe, 65536)
        if not data:
            break
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            sign, group = line[:1], int(line[1:])
            if sign == b"?":
                begun = group
                continue
            begun = 0 if group == begun else begun
            (groups.add if sign == b"+" else groups.discard)(group)
    return groups | ({begun} if begun else set())


def kill(groups: set[int]) -> None:
    """Kill the groups, and the other processes of their sessions where /proc lists them."""
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):  # not Linux
        for _ in range(KILLS):
            for name in os.listdir("/proc"):  # noqa: PTH208 - fast
                with contextlib.suppress(OSError, ValueError):  # the process has ended, or the name is no number
                    if os.getsid(int(name)) in groups:
                        os.kill(int(name), signal.SIGKILL)


def guard_worker() -> None:
    """Watch the worker and kill its groups once it is gone."""
    # Signals for the worker (Ctrl-C in its terminal, a service manager's stop) must not end the guard first.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    kill(watch_groups(0, int(sys.argv[1])))


if __name__ == "__main__":
    guard_worker()
