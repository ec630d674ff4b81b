"""Processes and what they hold: each works, says that it does not, or has ended; nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator

from pgsched.chaos.history import History
from pgsched.errors import DatabaseUnreachable

SLACK = {"threads": 2, "descriptors": 4, "children": 0}
CRASHES = (4, 6, 7, 8, 11)  # signals of the interpreter or a library that went wrong; nobody sends them
FATES = ("worked", "unhealthy", "exited")


def fates(history: History) -> Iterator[str]:
    """No process is silent, and none that ended by itself said that all was well."""
    for process in history.processes:
        if process.fate not in FATES:
            yield f"process {process.pid} neither works, nor says that it does not, nor has ended"
        if process.fate == "exited" and process.ended_by is None and process.code == 0:
            yield f"process {process.pid} ended by itself, with exit code 0"
        if process.code is not None and -process.code in CRASHES:
            yield f"process {process.pid} crashed with signal {-process.code}"


def stops(history: History) -> Iterator[str]:
    """A process that is asked to stop does so in time, and well. One that had no way to the database any more, and said
    so, may end with the exit code for that: it could not record what it had done."""
    within = history.settings.get("stop_within_s", 15.0)
    for process in history.processes:
        if process.stop_s is None:
            continue
        if process.code != 0 and not (process.fate == "unhealthy" and process.code == DatabaseUnreachable.exit_code):
            yield f"process {process.pid} was asked to stop and ended with {process.code}"
        if process.stop_s > within:
            yield f"process {process.pid} took {process.stop_s:.1f} s to stop, {within:g} s are allowed"


def leaks(history: History) -> Iterator[str]:
    """No thread, descriptor, child, session or lock is left over."""
    for process in history.processes:
        for what, slack in SLACK.items():
            before, after = (process.before or {}).get(what), (process.after or {}).get(what)
            if before is not None and after is not None and after > before + slack:
                yield f"process {process.pid} has {after} {what} at rest, it had {before} before"
    for leak in history.leaks:
        yield f"{leak.what} left over: {leak.text}"
