"""The rule: what a handler prints or logs belongs to its own attempt, whichever thread or task of it does so, and still
goes where it went before.

A context variable names the attempt; tasks and asyncio.to_thread inherit it. What goes around sys.stdout, sys.stderr
and logging (other processes, C code, `sys.stdout.buffer`, a stream that was opened before) is not seen.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from pgsched.execute.output.record import Record

CURRENT: ContextVar[Record | None] = ContextVar("pgsched_record", default=None)
FORMAT = logging.Formatter("%(levelname)s %(name)s: %(message)s")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MARK = "_pgsched_captured"
# What a handler forks has only a copy of its record, which nobody reads, and of a lock that may be held for ever there.
os.register_at_fork(after_in_child=lambda: CURRENT.set(None))
_EMIT = logging.StreamHandler.emit.__code__


@contextlib.contextmanager
def capturing(record: Record) -> Iterator[None]:
    """What is said in this context belongs to this attempt."""
    token = CURRENT.set(record)
    try:
        yield
    finally:
        CURRENT.reset(token)


class Tee:
    """sys.stdout or sys.stderr, with a copy of what is written for the attempt that writes."""

    def __init__(self, below: Any, stream: str) -> None:
        self._below = below
        self._stream = stream

    def write(self, text: str) -> Any:
        record = CURRENT.get()
        if record is not None and isinstance(text, str) and not is_kept(sys._getframe(1)):
            record.write(self._stream, COLOUR.sub("", text) if "\x1b" in text and self._below.isatty() else text)
        return self._below.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def is_kept(frame: Any) -> bool:
    """Is it logging that writes here, of a line that is kept already? If not, it is kept now."""
    if frame.f_code is not _EMIT:
        return False
    line = frame.f_locals.get("record")
    if line is None or getattr(line, MARK, False):
        return line is not None
    setattr(line, MARK, True)
    return False


class Lines(logging.Handler):
    """Takes what no handler of the user's writes to sys.stdout or sys.stderr."""

    def emit(self, line: logging.LogRecord) -> None:
        record = CURRENT.get()
        if record is not None and not getattr(line, MARK, False):
            setattr(line, MARK, True)
            record.write("log", FORMAT.format(line) + "\n")
        last = logging.lastResort
        if last is not None and line.levelno >= last.level and self._is_alone(line.name):
            last.handle(line)  # it speaks only where there is no handler, which we should not count for

    def _is_alone(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


class Streams:
    """Puts the tees and the log handler in place, and takes them away again."""

    def __init__(self) -> None:
        self._lines: Lines | None = None
        self._tees: list[tuple[str, Tee, Any]] = []
        self._level: int | None = None

    def install(self) -> None:
        """Needed once, before the first attempt that is captured. Logging that nobody set up lets INFO pass."""
        if self._lines is not None:
            return
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
        self._lines = Lines()
        root.addHandler(self._lines)

    def remove(self) -> None:
        """Leave everything as it was found."""
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


def print_at_once() -> None:
    """What handlers print is seen line by line, also where standard output is a file or a pipe (`docker logs`)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
