"""The first process of a container (process 1): reaps orphans and passes signals on to the worker, its child.

Invariant: no process that ends in the container stays a zombie.

Process 1 inherits every orphan, and only the parent can reap a process. A worker cannot wait for any child, because it
would take the exit codes of its own commands. So the worker runs in a child process, and process 1 only reaps and
passes signals on.
"""

from __future__ import annotations

import os
import signal
import sys

PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
BY_TERMINAL = 0x80  # si_code SI_KERNEL: every process of the terminal's group has received the signal already


def leave_process_one() -> None:
    """In process 1: continue in a child process, and end with its exit code. Elsewhere: do nothing.

    Call it before there are threads.
    """
    if os.getpid() != 1 or not hasattr(signal, "sigwaitinfo"):
        return
    wanted = PASSED_ON | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # while it is ignored, children cannot be waited for
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    code = reap_until_end(child, wanted)
    sys.stdout.flush()
    os._exit(code)


def reap_until_end(child: int, wanted: set[signal.Signals]) -> int:
    """Reap every process and pass signals on to `child`; return its exit code once it has ended."""
    while True:
        came = signal.sigwaitinfo(wanted)
        if came.si_signo != signal.SIGCHLD:
            if came.si_code != BY_TERMINAL:
                os.kill(child, came.si_signo)
            continue
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid == 0:
                break
