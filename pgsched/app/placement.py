"""Where a handler runs: on the event loop, in a thread, or in a child process.

Invariant: this is decided when the task is registered, and an impossible choice is refused then.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pgsched.errors import TaskError

PLACES = ("loop", "thread", "process")
MOST_MB = 1 << 24


@dataclass(frozen=True, slots=True)
class HandlerPlacement:
    """Where a handler runs.

    `run_in`: "loop" (the worker's event loop), "thread", or "process" (a child process).
    `memory_mb`: the memory limit of the child process, in MB; None: no limit.
    """

    run_in: str
    memory_mb: int | None = None


def choose_placement(task: str, run_in: str | None, memory_mb: int | None, *, is_async: bool) -> HandlerPlacement:
    """Return where a task runs: by default on the loop for an async function, in a thread for any other.

    Raises TaskError for a choice that is impossible.
    """
    if run_in is None:
        run_in = "loop" if is_async else "thread"
    if run_in not in PLACES:
        raise TaskError(f"task {task}: run_in: {run_in!r} is not one of {', '.join(PLACES)}")
    if run_in == "loop" and not is_async:
        raise TaskError(f'task {task}: run_in="loop" needs an async function: this one would block the worker')
    if run_in == "thread" and is_async:
        raise TaskError(
            f'task {task}: run_in="thread" needs a plain function; an async one runs in "loop" or "process"'
        )
    if memory_mb is not None:
        check_memory(task, run_in, memory_mb)
    return HandlerPlacement(run_in, memory_mb)


def check_capture(task: str, capture: bool) -> bool:
    """Return whether what the handler prints and logs is kept. Raises TaskError if it is not a bool."""
    if not isinstance(capture, bool):
        raise TaskError(f"task {task}: capture: expected True or False, got {capture!r}")
    return capture


def check_memory(task: str, run_in: str, memory_mb: int) -> None:
    """Raise TaskError for a memory limit that cannot be enforced."""
    if run_in != "process":
        raise TaskError(f'task {task}: memory_mb: only a process can be limited: add run_in="process"')
    if not isinstance(memory_mb, int) or isinstance(memory_mb, bool) or not 1 <= memory_mb <= MOST_MB:
        raise TaskError(f"task {task}: memory_mb: expected a whole number from 1 to {MOST_MB}, got {memory_mb!r}")
    if not sys.platform.startswith("linux"):
        raise TaskError(f"task {task}: memory_mb: only Linux keeps this limit")
