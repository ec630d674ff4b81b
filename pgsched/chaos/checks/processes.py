"""Check the worker processes: each works, reports that it cannot, or has ended, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

from pgsched.chaos.history import History
from pgsched.errors import DatabaseUnreachable

SLACK = {"threads": 2, "descriptors": 4, "children": 0}
CRASHES = (4, 6, 7, 8, 11)  # signals of a crash in the interpreter or a library; no fault sends them
FATES = ("worked", "unhealthy", "exited")


def check_fates(history: History) -> Iterator[str]:
    """Check that no process is silent, and that no process ended by itself with exit code 0 or crashed."""
    for process in history.processes:
        if process.fate not in FATES:
            yield f"process {process.pid} neither works, nor says that it does not, nor has ended"
        if process.fate == "exited" and process.ended_by is None and process.code == 0:
            yield f"process {process.pid} ended by itself, with exit code 0"
        if process.code is not None and -process.code in CRASHES:
            yield f"process {process.pid} crashed with signal {-process.code}"


def check_stops(history: History) -> Iterator[str]:
    """Check that each process that is asked to stop does so in time, with exit code 0.

    A process that had lost the database and logged so may end with the exit code for that: it could not record its
    outcomes.
    """
    within = history.settings.get("stop_within_s", 15.0)
    for process in history.processes:
        if process.stop_s is None:
            continue
        if process.code != 0 and not (process.fate == "unhealthy" and process.code == DatabaseUnreachable.exit_code):
            yield f"process {process.pid} was asked to stop and ended with {process.code}"
        if process.stop_s > within:
            yield f"process {process.pid} took {process.stop_s:.1f} s to stop, {within:g} s are allowed"


def check_leaks(history: History) -> Iterator[str]:
    """Check that no thread, descriptor, child process, session or lock is left over."""
    for process in history.processes:
        for what, slack in SLACK.items():
            before, after = (process.before or {}).get(what), (process.after or {}).get(what)
            if before is not None and after is not None and after > before + slack:
                yield f"process {process.pid} has {after} {what} at rest, it had {before} before"
    for leak in history.leaks:
        yield f"{leak.what} left over: {leak.text}"
