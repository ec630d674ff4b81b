"""The terminal of `pgsched top`: takes it over, draws on it, reads its keys, and handles signals.

Invariant: the terminal is restored however the program ends: normally, by an exception, or by a signal. It is also
restored while the process is suspended.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from rich.console import Console
from rich.text import Text

from pgsched.cli.top.keys import decode_keys
from pgsched.cli.top.pieces import ASCII

# the alternate screen, cleared; no cursor, no wrapping at the right edge, pasted text bracketed
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[2J"
LEAVE = "\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
ESC_S = 0.05  # seconds; an escape that nothing follows in this time is the key Esc
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
HANDLED_SIGNALS = (*ENDING_SIGNALS, signal.SIGINT, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


class EndSignal(BaseException):
    """Raised when a signal to end arrives while a write blocks, as on the terminal of a lost connection."""


class Screen:
    """A terminal to draw on and to read keys from."""

    def __init__(self, wake_fd: int) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._wake = wake_fd
        self._signals, self._signalled = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(self._signalled, False)
        self._terminal_settings: list[Any] = []
        self._drawn_rows: list[str] = []
        self._bytes = b""
        self._received_signals: list[int] = []
        self._writing = self._terminal_lost = False
        self._utf8 = "utf" in (sys.stdout.encoding or "").lower()

    @contextlib.contextmanager
    def taken(self) -> Iterator[Screen]:
        """Take the terminal over; restore it when the `with` block ends."""
        self._terminal_settings = termios.tcgetattr(self._in)
        before = {number: signal.signal(number, self._hear) for number in HANDLED_SIGNALS}
        wakeup = signal.set_wakeup_fd(self._signalled, warn_on_full_buffer=False)
        try:
            self._take()
            yield self
        except EndSignal:
            with contextlib.suppress(termios.error):  # unsent output would block us again
                termios.tcflush(self._out, termios.TCOFLUSH)
            self._obey()
            raise
        finally:
            self._give_back()
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._signals)
            os.close(self._signalled)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self._received_signals.append(number)
        if self._writing and number in (*ENDING_SIGNALS, signal.SIGINT):
            raise EndSignal

    def _take(self) -> None:
        tty.setcbreak(self._in, termios.TCSANOW)
        wanted = termios.tcgetattr(self._in)
        wanted[0] &= ~termios.IXON  # Ctrl-S would stop us
        termios.tcsetattr(self._in, termios.TCSANOW, wanted)
        self._write(ENTER)
        self._drawn_rows = []

    def _give_back(self) -> None:
        self._write(LEAVE)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, self._terminal_settings)

    def size(self) -> tuple[int, int]:
        """Return the terminal's columns and lines; 80 and 24 if it does not say."""
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(self._out)
            if found.columns and found.lines:
                return found.columns, found.lines
        return 80, 24

    def wait(self, seconds: float) -> list[str] | None:
        """Wait for keys, a signal, a byte in the wake pipe, or the timeout; return the keys pressed.

        Returns None if the terminal is gone. `seconds`: the timeout.
        """
        with contextlib.suppress(InterruptedError):
            ready, _, _ = select.select([self._in, self._wake, self._signals], [], [], max(0.0, seconds))
            for fd in (self._wake, self._signals):
                if fd in ready:
                    os.read(fd, 4096)
            self._obey()
            if self._in in ready:
                return self._read()
        return None if self._terminal_lost else []

    def _read(self) -> list[str] | None:
        try:
            data = os.read(self._in, 4096)
            if not data:
                return None
            found, self._bytes = decode_keys(self._bytes + data)
            while self._bytes:
                more = select.select([self._in], [], [], ESC_S)[0]
                data = os.read(self._in, 4096) if more else b""
                fresh, self._bytes = decode_keys(self._bytes + data, all_there=not data)
                found += fresh
        except OSError:
            return None
        return found

    def _obey(self) -> None:
        """Do what the received signals ask for."""
        came, self._received_signals = self._received_signals, []
        for number in came:
            if number in ENDING_SIGNALS:
                self._give_back()
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)  # the parent process sees which signal ended us
            elif number == signal.SIGINT:
                raise KeyboardInterrupt
            elif number == signal.SIGTSTP:
                self._suspend()
            else:
                self._drawn_rows = []

    def _suspend(self) -> None:
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # a SIGCONT has arrived: the process goes on
        signal.signal(signal.SIGTSTP, self._hear)
        self._take()

    def forget(self) -> None:
        """Draw everything anew next time, because the terminal may show something else."""
        self._drawn_rows = []

    def draw(self, lines: Sequence[Text]) -> None:
        """Show these lines; send only the lines that changed."""
        rows = ansi(lines)
        changed = "" if self._drawn_rows else "\x1b[0m\x1b[2J"
        for n, line in enumerate(rows):
            if n >= len(self._drawn_rows) or self._drawn_rows[n] != line:
                changed += f"\x1b[{n + 1};1H\x1b[0m\x1b[2K{line}"
        self._drawn_rows = rows
        if changed:
            self._write(changed)

    def _write(self, text: str) -> None:
        data = (text if self._utf8 else text.translate(ASCII)).encode(sys.stdout.encoding or "utf-8", "replace")
        self._writing = True
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            self._terminal_lost = True
        finally:
            self._writing = False


def ansi(lines: Sequence[Text]) -> list[str]:
    """Return the lines with the colour codes that the terminal knows; without colours under NO_COLOR."""
    console = Console(file=io.StringIO(), force_terminal=True, highlight=False, width=10_000)
    rows = []
    for text in lines:
        with console.capture() as captured:
            console.print(text, end="", soft_wrap=True)
        rows.append(captured.get())
    return rows
