"""The rule: a handler that keeps the loop or the whole interpreter to itself is named: while it does so where Python
code can still run, and else afterwards.

While the loop is blocked nothing is claimed, settled or stopped, but the leases are kept, because the heartbeat has a
thread of its own. A C call that holds the interpreter stops that thread too; it can cost the leases. Whoever gets the
interpreter next looks where the others are: mostly the call is still to be seen. While it lasts only faulthandler sees
it, from a thread that needs no interpreter; it is wound up at every look and goes off when none comes for long. Not
sooner: when a process that was frozen goes on, it would read stacks that are changing, and that can crash the process.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import IO

from pgsched import log
from pgsched.execute.anonymous_file import anonymous_file
from pgsched.worker.attempts.attempt import Running

logger = log.get("watchdog")
BLOCKED_S = 5.0
LOOK_S = 1.0
DUMP_S = 60.0
AGAIN = 4  # told again when it has lasted this many times as long
STACK_CHARACTERS = 4000
LOOKING = threading.Lock()
Blocked = tuple[float, str]


class Watchdog(threading.Thread):
    """Watches the loop that it is made on. `running` are the attempts being made, `tasks` all there are, and `code_of`
    finds a task's function; `on_news()` is told when the loop is blocked, and when no more; `on_blocked(who)` each
    second in between."""

    def __init__(
        self,
        running: Callable[[], Sequence[Running]],
        code_of: Callable[[str], CodeType | None],
        tasks: Sequence[str] = (),
    ) -> None:
        super().__init__(name="pgsched-watchdog", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._running = running
        self._code_of = code_of
        self._tasks = tasks
        self.on_news: Callable[[], object] = lambda: None
        self.on_blocked: Callable[[str], object] = lambda who: None
        self._blocked_s = BLOCKED_S
        self._turned_at = self._looked_at = time.monotonic()
        self._noted: list[str] = []
        self._tell_at_s = self._blocked_s
        self._who = ""
        self._stopping = threading.Event()
        self._dump: IO[bytes] = anonymous_file()

    def turned(self) -> None:
        """The loop has had a turn; to be called on it at least once a second."""
        self._turned_at = time.monotonic()
        if not self._noted and self._turned_at > self._looked_at + self._blocked_s + LOOK_S:
            self._noted += stacks_of_others()

    def silent_s(self) -> float:
        """Seconds since the loop had a turn."""
        return time.monotonic() - self._turned_at

    def blocked(self) -> Blocked | None:
        """For how many seconds the loop has not turned, and who is at it; None when it turns."""
        seconds = time.monotonic() - self._turned_at
        return (seconds, self._who) if seconds >= self._blocked_s and self._who else None

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            faulthandler.dump_traceback_later(DUMP_S, file=self._dump)
            began, cpu_s = time.monotonic(), time.process_time()
            self._looked_at = began
            self._stopping.wait(LOOK_S)
            late_s = time.monotonic() - began - LOOK_S
            try:
                if late_s >= self._blocked_s:
                    self._tell_held(late_s, time.process_time() - cpu_s)
                else:
                    self._look(time.monotonic() - self._turned_at)
            except Exception:  # a report that fails must not end the watch
                logger.error("watchdog failed", exc_info=True)
        faulthandler.cancel_dump_traceback_later()
        self._dump.close()

    # ---- the loop

    def _look(self, seconds: float) -> None:
        if seconds < self._blocked_s:
            if self._who:
                logger.warning("the event loop turns again", was_blocked_by=self._who)
                self._who, self._tell_at_s = "", self._blocked_s
                self.on_news()
            return
        if seconds >= self._tell_at_s:
            frame = current_frames().get(self._loop_thread)
            found = self._at_the_loop(frame)
            self._who = names(found) or one_of(list(self._running()))
            self._tell_at_s = seconds * AGAIN
            logger.warning("the event loop is blocked", seconds=round(seconds, 1), by=self._who,
                           remedy='run_in="thread" or "process"', stack=self._stack(frame, found))  # fmt: skip
            self.on_news()
        self.on_blocked(self._who)

    def _at_the_loop(self, frame: FrameType | None) -> list[Running]:
        """The attempt whose task is at it; if that is a task of a handler's own, those whose code is on the stack."""
        task = asyncio.current_task(self._loop)
        running = list(self._running())
        exact = [one for one in running if one.is_made_by(task)]
        codes = {part.f_code for part, _ in traceback.walk_stack(frame)} if frame is not None else set()
        return exact or [one for one in running if not codes.isdisjoint(within(self._code_of(one.claim.task)))]

    def _stack(self, frame: FrameType | None, found: list[Running]) -> str:
        lines = traceback.format_stack(frame) if frame is not None else []
        codes = [code for one in found if (code := self._code_of(one.claim.task))]
        marks = [f'File "{code.co_filename}", line ' for code in codes]
        first = next((n for n, line in enumerate(lines) if any(mark in line for mark in marks)), max(0, len(lines) - 8))
        return "".join(lines[first:])[-STACK_CHARACTERS:].rstrip()

    # ---- the interpreter

    def _tell_held(self, seconds: float, cpu_s: float) -> None:
        """No Python code ran in this process: a C call held the interpreter, or the whole process stood still."""
        seen = [*self._take_dump().split("\n\n"), *self._noted, *stacks_of_others()]
        running, blocks = list(self._running()), list(dict.fromkeys(seen))
        self._noted = []
        found = [one for one in running if any(self._is_in(one.claim.task, block) for block in blocks)]
        # The attempt may have ended since: its thread went on first.
        tasks = {one.claim.task for one in found} or {
            task for task in self._tasks if any(self._is_in(task, block) for block in blocks)
        }
        threads = [block for block in blocks if any(self._is_in(task, block) for task in tasks)]
        mine = f"{self._loop_thread:#018x}"
        shown = threads or [block for block in blocks if mine in block]
        logger.warning("no Python code of this process ran", seconds=round(seconds, 1), cpu_s=round(cpu_s, 1),
                       by=names(found) or ", ".join(sorted(tasks)[:5]) or one_of(running), remedy='run_in="process"',
                       stack="\n".join(shown)[:STACK_CHARACTERS] or None)  # fmt: skip

    def _take_dump(self) -> str:
        fd = self._dump.fileno()
        text = os.pread(fd, 1 << 20, 0).decode("utf-8", "replace")
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        return text

    def _is_in(self, task: str, block: str) -> bool:
        code = self._code_of(task)
        return code is not None and any(
            f'File "{code.co_filename}"' in line and line.endswith(f" in {code.co_name}") for line in block.splitlines()
        )


def current_frames() -> dict[int, FrameType]:
    """The frame of each thread, by its identifier. Without a collection of garbage in between: Python locks its list of
    threads for it, and to free a `threading.local` takes that lock too: the interpreter would stand still for ever
    (https://github.com/python/cpython/issues/106883, in 3.11 until 3.11.9)."""
    with LOOKING:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


def stacks_of_others() -> list[str]:
    """Where the other threads are, as faulthandler writes it."""
    here = threading.get_ident()
    frames = {thread: frame for thread, frame in current_frames().items() if thread != here}
    stacks = {thread: list(traceback.walk_stack(frame)) for thread, frame in frames.items()}
    return [
        f"Thread {thread:#018x} (most recent call first):\n"
        + "\n".join(f'  File "{at.f_code.co_filename}", line {line} in {at.f_code.co_name}' for at, line in stack)
        for thread, stack in stacks.items()
    ]


def within(code: CodeType | None) -> Iterator[CodeType]:
    """The code of a function and of those that are written inside of it."""
    if code is not None:
        yield code
        for part in code.co_consts:
            if isinstance(part, CodeType):
                yield from within(part)


def names(found: Sequence[Running]) -> str:
    """The attempts, for people."""
    return ", ".join(f"{one.claim.task[:80]} (run {one.claim.id})" for one in found[:5])


def one_of(candidates: Sequence[Running]) -> str:
    """It is not known which."""
    return f"one of {names(candidates)}" if candidates else "no handler"
