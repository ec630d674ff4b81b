"""The processes of a command that runs under a lock; and the guard, a small program beside `pgsched lock run`.

Invariant: no process of the command goes on when the lease has ended, whatever becomes of `pgsched lock run`.

`lock run` ends its command itself. The guard is for the case that it cannot, because it was killed or stopped: it kills
the command when `lock run` is gone, or when the lease has not been renewed.

The module is run as a script, and imports nothing of pgsched.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterable

LOOK_S = 1.0
HAS_KILLED = 3  # the guard's exit code, when it has killed the command
KILLS = 3  # a process may start another one just before it is killed
# While a machine sleeps, CLOCK_MONOTONIC stands still, and the leases in the database go on to their end.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
Process = tuple[int, int]  # its number, and when it was started: another process may get the number later
HAS_PROC = os.path.exists("/proc/self/stat")  # noqa: PTH110


def processes_of(root: int, known: Collection[Process] = ()) -> set[Process]:
    """Return the live processes of a command: the first one, its group, its session, and all that they have started.

    Also those of `known` that live: a process whose parent has ended may belong to no group of the command.
    Only the first one where the system has no Linux /proc.
    """
    if not HAS_PROC:
        return {(root, 0)}
    live, parents, pids = dict[int, Process](), dict[int, int](), set[int]()
    for name in os.listdir("/proc"):  # noqa: PTH208 - fast
        with contextlib.suppress(OSError, ValueError):  # the process has ended, or the name is no number
            pid = int(name)
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - fast
                state, *fields = file.read().rpartition(")")[2].split()
            parent, group, session = map(int, fields[:3])
            process = pid, int(fields[18])
            if state not in "ZX":
                live[pid], parents[pid] = process, parent
                if process in known or root in (pid, group, session):
                    pids.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in pids and pid not in pids}:
        pids |= more
    return {live[pid] for pid in pids}


def signal_processes(processes: Iterable[Process], number: int) -> None:
    """Send a signal to processes, as far as they have not ended, and belong to this user."""
    for pid, _ in processes:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def kill_all(root: int, known: Collection[Process] = ()) -> None:
    """Kill the processes of a command: at once those of its group, then all that are found."""
    with contextlib.suppress(OSError):
        os.killpg(root, signal.SIGKILL)
    for _ in range(KILLS):
        if not (found := processes_of(root, known)):
            return
        signal_processes(found, signal.SIGKILL)


def end_with_parent(pipe: int, parent: int) -> int | None:
    """Read lines until the command is to be killed; return its first process, None where nothing is to be killed.

    - `+PID` names the first process.
    - `=SECONDS` is the end of the lease, on CLOCK. A later line replaces it.
    - `-` says that the command has ended.
    """
    root: int | None = None
    deadline, partial_line = float("inf"), b""
    while True:
        left = deadline - time.clock_gettime(CLOCK)
        if not select.select([pipe], [], [], max(0.0, min(LOOK_S, left)))[0]:
            if left <= 0 or os.getppid() != parent:
                return root
            continue
        data = os.read(pipe, 65536)
        if not data:
            return root
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            if line == b"-":
                return None
            if line[:1] == b"+":
                root = int(line[1:])
            else:
                deadline = float(line[1:])


def guard_command() -> None:
    """Watch `pgsched lock run`, and kill its command where that is needed."""
    # Signals for `lock run` (Ctrl-C in its terminal, a service manager's stop) must not end the guard first.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.write(1, b".")  # it is at work
    os.close(1)
    if (root := end_with_parent(0, int(sys.argv[1]))) is not None:
        kill_all(root)
        sys.exit(HAS_KILLED)


if __name__ == "__main__":
    guard_command()
