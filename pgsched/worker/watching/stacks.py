"""Stacks of threads, and which attempt's handler a stack shows."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from types import CodeType, FrameType

from pgsched.worker.attempts.attempt import RunningAttempt

STACK_CHARACTERS = 4000
LOOKING = threading.Lock()


class HandlerFinder:
    """A finder of the handlers that block the event loop on which it is made.

    - `running()`: returns the attempts being made.
    - `code_of(task)`: returns the code object of a task's function.
    - `tasks`: the names of all tasks.
    """

    def __init__(
        self,
        running: Callable[[], Sequence[RunningAttempt]],
        code_of: Callable[[str], CodeType | None],
        tasks: Sequence[str] = (),
    ) -> None:
        self.running = running
        self._code_of = code_of
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def frame(self) -> FrameType | None:
        """Return the current frame of the event loop's thread."""
        return current_frames().get(self._thread)

    def at_the_loop(self, frame: FrameType | None) -> list[RunningAttempt]:
        """Return the attempt whose task runs now on the event loop.

        Where a handler's own task runs, return the attempts whose code is on the stack.
        """
        task = asyncio.current_task(self._loop)
        running = list(self.running())
        exact = [one for one in running if one.is_made_by(task)]
        codes = {part.f_code for part, _ in traceback.walk_stack(frame)} if frame is not None else set()
        return exact or [one for one in running if not codes.isdisjoint(nested_codes(self._code_of(one.claim.task)))]

    def stack(self, frame: FrameType | None, found: Sequence[RunningAttempt]) -> str:
        """Return the stack from the handler's first line on, or its last lines."""
        lines = traceback.format_stack(frame) if frame is not None else []
        codes = [code for one in found if (code := self._code_of(one.claim.task))]
        marks = [f'File "{code.co_filename}", line ' for code in codes]
        first = next((n for n, line in enumerate(lines) if any(mark in line for mark in marks)), max(0, len(lines) - 8))
        return "".join(lines[first:])[-STACK_CHARACTERS:].rstrip()

    def tasks_in(self, blocks: Collection[str], running: Sequence[RunningAttempt]) -> set[str]:
        """Return the tasks that these stacks show: running ones, or else any, because the attempt may have ended."""
        shown = {one.claim.task for one in running if self._is_in(one.claim.task, blocks)}
        return shown or {task for task in self._tasks if self._is_in(task, blocks)}

    def stacks_of(self, tasks: Collection[str], blocks: Collection[str]) -> list[str]:
        """Return the stacks that show these tasks, or that of the event loop's thread where none does."""
        mine = f"{self._thread:#018x}"
        threads = [block for block in blocks if any(self._is_in(task, [block]) for task in tasks)]
        return threads or [block for block in blocks if mine in block]

    def _is_in(self, task: str, blocks: Collection[str]) -> bool:
        code = self._code_of(task)
        return code is not None and any(
            f'File "{code.co_filename}"' in line and line.endswith(f" in {code.co_name}")
            for block in blocks
            for line in block.splitlines()
        )


def current_frames() -> dict[int, FrameType]:
    """Return the frame of each thread, by the thread's identifier, with garbage collection switched off meanwhile.

    Python locks its list of threads to make the answer. A collection that frees a `threading.local` takes the same
    lock, and then the interpreter stops for ever (https://github.com/python/cpython/issues/106883, in 3.11 until
    3.11.9).
    """
    with LOOKING:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


def stacks_of_others() -> list[str]:
    """Return the stacks of all other threads, in faulthandler's format."""
    here = threading.get_ident()
    frames = {thread: frame for thread, frame in current_frames().items() if thread != here}
    stacks = {thread: list(traceback.walk_stack(frame)) for thread, frame in frames.items()}
    return [
        f"Thread {thread:#018x} (most recent call first):\n"
        + "\n".join(f'  File "{at.f_code.co_filename}", line {line} in {at.f_code.co_name}' for at, line in stack)
        for thread, stack in stacks.items()
    ]


def nested_codes(code: CodeType | None) -> Iterator[CodeType]:
    """Yield the code of a function and of the functions inside of it."""
    if code is not None:
        yield code
        for part in code.co_consts:
            if isinstance(part, CodeType):
                yield from nested_codes(part)


def format_attempts(found: Sequence[RunningAttempt]) -> str:
    """Return the names of the attempts, for people."""
    return ", ".join(f"{one.claim.task[:80]} (run {one.claim.id})" for one in found[:5])


def format_candidates(candidates: Sequence[RunningAttempt]) -> str:
    """Return words for a handler that may be any of these."""
    return f"one of {format_attempts(candidates)}" if candidates else "no handler"
