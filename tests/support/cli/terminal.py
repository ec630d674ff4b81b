"""A terminal for tests: a shell on a pty, and the screen that a person would see.

The screen understands the control sequences that a shell and `pgsched top` send, and no others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.support.paths import ROOT

SEQUENCE = re.compile(r"\x1b\[([?>=]?)([0-9;]*)([@-~])|\x1b[()][0-9A-Za-z]|\x1b[=>78]")
PROMPT = "READY> "
RULES = """
PS1='{prompt}'
top() {{
    local before=$(stty -g) code same=CHANGED
    '{python}' -m pgsched top --interval 0.2 "$@"
    code=$?
    [ "$before" = "$(stty -g)" ] && same=restored
    echo "ended $code, terminal $same"
}}
"""


class Screen:
    """A grid of characters to which the terminal's output is written."""

    def __init__(self, width: int, height: int) -> None:
        self.modes: set[str] = {"7", "25"}
        self.colours: set[str] = set()
        self._kept: tuple[list[list[str]], int, int] | None = None
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.clear()

    def clear(self) -> None:
        self.rows = [[" "] * self.width for _ in range(self.height)]
        self.x = self.y = 0

    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows)

    def write(self, text: str) -> str:
        """Show the text; return the end of the text if it may be the beginning of a control sequence."""
        while text:
            if text[0] == "\x1b":
                found = SEQUENCE.match(text)
                if found is None and len(text) < 20:
                    return text
                if found is not None and found[3]:
                    self.obey(found[1], found[2], found[3])
                text = text[found.end() if found else 1 :]
            else:
                self.put(text[0])
                text = text[1:]
        return ""

    def put(self, character: str) -> None:
        if character == "\r":
            self.x = 0
        elif character == "\n":
            self.down()
        elif character == "\b":
            self.x = max(0, self.x - 1)
        elif character >= " ":
            if self.x >= self.width:
                if "7" not in self.modes:
                    self.x = self.width - 1
                else:
                    self.x = 0
                    self.down()
            self.rows[self.y][self.x] = character
            for _ in range(cell_len(character) - 1):
                self.rows[self.y][min(self.x + 1, self.width - 1)] = ""
            self.x += cell_len(character)

    def down(self) -> None:
        if self.y < self.height - 1:
            self.y += 1
        else:
            self.rows = [*self.rows[1:], [" "] * self.width]

    def obey(self, mark: str, given: str, what: str) -> None:
        numbers = [int(number or 0) for number in given.split(";")]
        if mark == "?" and what in "hl":
            self.switch(given, what == "h")
        elif what == "H":
            self.y = min(max(numbers[0], 1), self.height) - 1
            self.x = min(max(numbers[1] if len(numbers) > 1 else 1, 1), self.width) - 1
        elif what == "J":
            self.rows = [[" "] * self.width for _ in range(self.height)]
        elif what == "K":
            begin = 0 if numbers[0] == 2 else min(self.x, self.width - 1)
            self.rows[self.y][begin:] = [" "] * (self.width - begin)
        elif what == "m":
            self.colours |= {str(number) for number in numbers if 30 <= number <= 38 or 90 <= number <= 97}

    def switch(self, mode: str, on: bool) -> None:
        if mode == "1049" and on and self._kept is None:
            self._kept = (self.rows, self.x, self.y)
            self.clear()
        elif mode == "1049" and not on and self._kept is not None:
            (rows, self.x, self.y), self._kept = self._kept, None
            self.rows = [(row + [" "] * self.width)[: self.width] for row in rows][: self.height]
            self.rows += [[" "] * self.width for _ in range(self.height - len(self.rows))]
            self.y = min(self.y, self.height - 1)
        self.modes = self.modes | {mode} if on else self.modes - {mode}


class Terminal:
    """A shell on a pty. Its function `top` runs `pgsched top`, then prints the exit code and the terminal's state."""

    def __init__(self, width: int, height: int, environment: dict[str, str], folder: Path) -> None:
        self.screen = Screen(width, height)
        self._fd, slave = os.openpty()
        self.resize(width, height)
        self._rest, self._bytes = "", b""
        rules = folder / "bashrc"
        rules.write_text(RULES.format(prompt=PROMPT, python=sys.executable))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PGSCHED_", "NO_COLOR"))}
        self.shell = subprocess.Popen(
            ["bash", "--noediting", "--noprofile", "--rcfile", str(rules), "-i"], stdin=slave, stdout=slave,
            stderr=slave, cwd=ROOT, env={**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment},
            preexec_fn=lambda: os.login_tty(slave),  # noqa: PLW1509 - its own session, with this terminal
        )  # fmt: skip
        os.close(slave)
        self.until(PROMPT.strip())

    def resize(self, width: int, height: int) -> None:
        self.screen.resize(width, height)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def send(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def unread(self, after_s: float = 0.0) -> int:
        """Wait for `after_s`, then return how many characters of output the screen has not taken in yet."""
        time.sleep(after_s)
        counted = fcntl.ioctl(self._fd, termios.FIONREAD, struct.pack("i", 0))
        return int(struct.unpack("i", counted)[0])

    def pump(self, seconds: float) -> bool:
        """Show the output that arrives within the time; return whether any did."""
        if select.select([self._fd], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                data = self._bytes + os.read(self._fd, 65536)
                text = data.decode(errors="ignore")
                self._bytes = data[len(text.encode()) :] if len(text.encode()) < len(data) else b""
                self._rest = self.screen.write(self._rest + text)
                return True
        return False

    def until(self, wanted: str | Callable[[str], object], timeout: float = 60.0) -> str:
        """Wait until the screen shows a text or satisfies a condition; return the screen's text."""
        deadline = time.monotonic() + timeout
        while True:
            self.pump(0.05)
            shown = self.screen.text()
            if wanted(shown) if callable(wanted) else wanted in shown:
                return shown
            if time.monotonic() > deadline:
                pytest.fail(f"waited {timeout:g} s for {wanted!r}; there stands\n{shown}")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)
        try:
            self.shell.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.shell.pid, signal.SIGKILL)
            self.shell.wait()


@contextlib.contextmanager
def terminal(folder: Path, dsn: str, width: int = 80, height: int = 24, **environment: str) -> Iterator[Terminal]:
    """Yield a shell on a terminal, and end it afterwards."""
    made = Terminal(width, height, {"PGSCHED_DSN": dsn, **environment}, folder)
    try:
        yield made
    finally:
        made.close()
