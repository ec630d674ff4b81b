"""Capture of what handlers print and log: output goes to the attempt's Record and still to its usual place.

Invariant: output belongs to the attempt whose code writes it, in whichever thread or task.

A context variable names the attempt; tasks and asyncio.to_thread inherit it. Output that bypasses sys.stdout,
sys.stderr and logging is not captured: that of other processes, C code, `sys.stdout.buffer`, and streams opened before.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from pgsched.execute.output.record import Record

CURRENT: ContextVar[Record | None] = ContextVar("pgsched_record", default=None)
FORMAT = logging.Formatter("%(levelname)s %(name)s: %(message)s")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MARK = "_pgsched_captured"
# A process that a handler forks has only a copy of the record, which is never read, and of a lock that may stay locked.
os.register_at_fork(after_in_child=lambda: CURRENT.set(None))
_EMIT = logging.StreamHandler.emit.__code__


@contextlib.contextmanager
def capturing(record: Record) -> Iterator[None]:
    """Give the output of this context to this attempt's Record."""
    token = CURRENT.set(record)
    try:
        yield
    finally:
        CURRENT.reset(token)


class Tee:
    """sys.stdout or sys.stderr, with a copy of the text for the attempt that writes it."""

    def __init__(self, below: Any, stream: str) -> None:
        self._below = below
        self._stream = stream

    def write(self, text: str) -> Any:
        """Write text to the stream below, and a copy to the current attempt's Record."""
        record = CURRENT.get()
        if record is not None and isinstance(text, str) and not is_recorded_line(sys._getframe(1)):
            record.write(self._stream, COLOUR.sub("", text) if "\x1b" in text and self._below.isatty() else text)
        return self._below.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def is_recorded_line(frame: Any) -> bool:
    """Check whether `logging` writes a line that is kept already; otherwise mark the line as kept."""
    if frame.f_code is not _EMIT:
        return False
    line = frame.f_locals.get("record")
    if line is None or getattr(line, MARK, False):
        return line is not None
    setattr(line, MARK, True)
    return False


class LogCapture(logging.Handler):
    """The log handler that records log lines which no handler of the user writes to sys.stdout or sys.stderr."""

    def emit(self, line: logging.LogRecord) -> None:
        """Record the line, and pass it on to logging's last resort where no other handler exists."""
        record = CURRENT.get()
        if record is not None and not getattr(line, MARK, False):
            setattr(line, MARK, True)
            record.write("log", FORMAT.format(line) + "\n")
        last = logging.lastResort
        if last is not None and line.levelno >= last.level and self._is_alone(line.name):
            last.handle(line)  # lastResort writes only where a logger has no handler, and this one must not count

    def _is_alone(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


class Streams:
    """The use that one worker makes of the tees and the log handler, which a process has once."""

    def __init__(self) -> None:
        self._installed = False

    def install(self) -> None:
        """Install them before the first captured attempt, unless another worker of this process has."""
        if not self._installed:
            self._installed = True
            _of_process.install()

    def remove(self) -> None:
        """Restore the streams and logging, unless another worker of this process still captures."""
        if self._installed:
            self._installed = False
            _of_process.remove()


class ProcessStreams:
    """The tees and the log handler of this process, and how many workers use them."""

    def __init__(self) -> None:
        self._users = 0
        self._lock = threading.Lock()
        self._lines: LogCapture | None = None
        self._tees: list[tuple[str, Tee, Any]] = []
        self._level: int | None = None

    def install(self) -> None:
        """Count one more user, and install them for the first; let INFO pass where logging was never set up."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._install()

    def remove(self) -> None:
        """Count one user less, and restore the streams and logging after the last."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._remove()

    def _install(self) -> None:
        for name in ("stdout", "stderr"):
            below = getattr(sys, name)
            if below is not None and not isinstance(below, Tee):
                tee = Tee(below, name)
                self._tees.append((name, tee, below))
                setattr(sys, name, tee)
        root = logging.getLogger()
        if not root.handlers and root.level == logging.WARNING:
            self._level = root.level
            root.setLevel(logging.INFO)
        self._lines = LogCapture()
        root.addHandler(self._lines)

    def _remove(self) -> None:
        for name, tee, below in self._tees:
            if getattr(sys, name) is tee:
                setattr(sys, name, below)
        self._tees = []
        root = logging.getLogger()
        if self._lines is not None:
            root.removeHandler(self._lines)
        if self._level is not None and root.level == logging.INFO:
            root.setLevel(self._level)
        self._lines = self._level = None


_of_process = ProcessStreams()


def flush_each_line() -> None:
    """Flush standard output after each line, also where it is a file or a pipe (`docker logs`)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
