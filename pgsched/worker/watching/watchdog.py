"""The watchdog: a thread that reports which handler blocks the event loop or the whole interpreter.

Invariant: a handler that blocks is named: during the block where Python code can still run, otherwise afterwards.

While the event loop is blocked, nothing is claimed, settled or stopped. The leases are renewed, because the heartbeat
has its own thread.

A C call that holds the interpreter stops that thread too, and can cost the leases. The first thread that gets the
interpreter again looks at the stacks of the others: mostly the call is still on one of them. During the call only
faulthandler can see it, from a thread that needs no interpreter. Each look of the watchdog restarts faulthandler's
timer, which fires when no look comes for DUMP_S. The time is long for a reason: after a frozen process continues,
faulthandler would read stacks that are changing, which can crash the process.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable
from typing import IO

from pgsched import log
from pgsched.execute.anonymous_file import open_anonymous_file
from pgsched.worker.watching.stacks import (
    STACK_CHARACTERS,
    HandlerFinder,
    format_attempts,
    format_candidates,
    stacks_of_others,
)

logger = log.get("watchdog")
BLOCKED_S = 5.0
LOOK_S = 1.0
DUMP_S = 60.0
AGAIN = 4  # report again when the block has lasted this many times longer
Blocked = tuple[float, str]


class Watchdog(threading.Thread):
    """The thread that watches the event loop of `finder`.

    - `on_change()`: called when the loop is blocked, and when it runs again.
    - `on_blocked(who)`: called each second in between.
    - `dumps`: use faulthandler's timer. A process has only one.
    """

    def __init__(self, finder: HandlerFinder, *, dumps: bool = True) -> None:
        super().__init__(name="pgsched-watchdog", daemon=True)
        self._finder = finder
        self._dumps = dumps
        self.on_change: Callable[[], object] = lambda: None
        self.on_blocked: Callable[[str], object] = lambda who: None
        self._turned_at = self._looked_at = time.monotonic()
        self._late_stacks: list[str] = []
        self._report_at_s = BLOCKED_S
        self._blocker = ""
        self._stopping = threading.Event()
        self._dump: IO[bytes] = open_anonymous_file()

    def turned(self) -> None:
        """Note that the event loop runs. Call it on the loop at least once a second."""
        self._turned_at = time.monotonic()
        if not self._late_stacks and self._turned_at > self._looked_at + BLOCKED_S + LOOK_S:
            self._late_stacks += stacks_of_others()

    def silent_s(self) -> float:
        """Return the seconds since the event loop last ran."""
        return time.monotonic() - self._turned_at

    def blocked(self) -> Blocked | None:
        """Return for how many seconds the event loop has been blocked, and by what; None where it runs."""
        seconds = time.monotonic() - self._turned_at
        return (seconds, self._blocker) if seconds >= BLOCKED_S and self._blocker else None

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()

    def run(self) -> None:
        """Watch until stopped."""
        while not self._stopping.is_set():
            if self._dumps:
                faulthandler.dump_traceback_later(DUMP_S, file=self._dump)
            began, cpu_s = time.monotonic(), time.process_time()
            self._looked_at = began
            self._stopping.wait(LOOK_S)
            late_s = time.monotonic() - began - LOOK_S
            try:
                if late_s >= BLOCKED_S:
                    self._tell_held(late_s, time.process_time() - cpu_s)
                else:
                    self._look(time.monotonic() - self._turned_at)
            except Exception:  # a report that fails must not end the watch
                logger.error("watchdog failed", exc_info=True)
        if self._dumps:
            faulthandler.cancel_dump_traceback_later()
        self._dump.close()

    # ---- the loop

    def _look(self, seconds: float) -> None:
        if seconds < BLOCKED_S:
            if self._blocker:
                logger.warning("the event loop turns again", was_blocked_by=self._blocker)
                self._blocker, self._report_at_s = "", BLOCKED_S
                self.on_change()
            return
        if seconds >= self._report_at_s:
            frame = self._finder.frame()
            found = self._finder.at_the_loop(frame)
            self._blocker = format_attempts(found) or format_candidates(list(self._finder.running()))
            self._report_at_s = seconds * AGAIN
            logger.warning("the event loop is blocked", seconds=round(seconds, 1), by=self._blocker,
                           remedy='run_in="thread" or "process"', stack=self._finder.stack(frame, found))  # fmt: skip
            self.on_change()
        self.on_blocked(self._blocker)

    # ---- the interpreter

    def _tell_held(self, seconds: float, cpu_s: float) -> None:
        """Report that no Python code ran: a C call held the interpreter, or the whole process stood still."""
        seen = [*self._take_dump().split("\n\n"), *self._late_stacks, *stacks_of_others()]
        running, blocks = list(self._finder.running()), list(dict.fromkeys(seen))
        self._late_stacks = []
        tasks = self._finder.tasks_in(blocks, running)
        found = [one for one in running if one.claim.task in tasks]
        shown = self._finder.stacks_of(tasks, blocks)
        logger.warning(
            "no Python code of this process ran",
            seconds=round(seconds, 1),
            cpu_s=round(cpu_s, 1),
            by=format_attempts(found) or ", ".join(sorted(tasks)[:5]) or format_candidates(running),
            remedy='run_in="process"',
            stack="\n".join(shown)[:STACK_CHARACTERS] or None,
        )

    def _take_dump(self) -> str:
        fd = self._dump.fileno()
        text = os.pread(fd, 1 << 20, 0).decode("utf-8", "replace")
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        return text
