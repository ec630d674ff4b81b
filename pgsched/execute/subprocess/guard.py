"""The rule: when the worker is gone, so is every process it started, grandchildren included.

The parent-death signal reaches only the process that the worker started itself. This program, one beside each worker,
holds the read end of a pipe whose other end only the worker has: at its end of file the worker is dead, however it
died, and every group that is still listed is killed, with all of the session that it leads. Run as a script; it imports
nothing of pgsched.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

LOOK_S = 1.0
KILLS = 3  # what is killed may just have started another


def watch(pipe: int, worker: int) -> set[int]:
    """Follow `+group` and `-group` lines until the worker is gone; returns the groups left.

    `?group`, from a child that is about to become a program, holds until the worker says more about that group, or
    another child begins. `?0`: it has become none.
    """
    groups: set[int] = set()
    begun = 0
    rest = b""
    while True:
        # The list first, then the death: the worker may die before this program has come to its first line. A child
        # that the user's code forked may hold the pipe open; then our own parent's change says it.
        if not select.select([pipe], [], [], LOOK_S)[0]:
            if os.getppid() != worker:
                break
            continue
        data = os.read(pipe, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            sign, group = line[:1], int(line[1:])
            if sign == b"?":
                begun = group
                continue
            begun = 0 if group == begun else begun
            (groups.add if sign == b"+" else groups.discard)(group)
    return groups | ({begun} if begun else set())


def kill(groups: set[int]) -> None:
    """Kill the groups, and others of their sessions where /proc tells them."""
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):  # no Linux
        for _ in range(KILLS):
            for name in os.listdir("/proc"):  # noqa: PTH208 - fast
                with contextlib.suppress(OSError, ValueError):  # it is gone, or no process
                    if os.getsid(int(name)) in groups:
                        os.kill(int(name), signal.SIGKILL)


def main() -> None:
    # Signals meant for the worker (Ctrl-C in its terminal, a service manager's stop) must not end its guard first.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    kill(watch(0, int(sys.argv[1])))


if __name__ == "__main__":
    main()
